package notice

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/packaging"
)

// A notice has the licence of every module that is linked, also those in the directories of single
// packages, that of Go, and the project's own.
func TestNotice(t *testing.T) {
	modules, err := modulesOf(t.Context(), &buildinfo.BuildInfo{GoVersion: runtime.Version(),
		Main: debug.Module{Path: packaging.Project},
		Path: "github.com/Azure/AKSFlexNode/cmd/aks-flex-node"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]string{}
	for _, m := range modules {
		name, _, _ := strings.Cut(m.name, "@")
		if found[name], err = m.licences(); err != nil {
			t.Error(err)
		}
	}
	golang := found["Go "+strings.TrimPrefix(runtime.Version(), "go")]
	if !strings.Contains(golang["LICENSE"], "Redistribution and use") || golang["PATENTS"] == "" {
		t.Errorf("of Go: %q", golang)
	}
	for module, file := range map[string]string{"github.com/spf13/cobra": "LICENSE.txt",
		"github.com/klauspost/compress": "zstd/internal/xxhash/LICENSE.txt",
		"github.com/google/uuid":        "LICENSE", "k8s.io/apimachinery": "third_party/forked/golang/LICENSE",
		"github.com/Azure/AKSFlexNode": "LICENSE"} {
		if found[module][file] == "" {
			t.Errorf("%s has %q", module, found[module])
		}
	}
}

// A licence beside a package counts, and one of a package that is not linked does not. Whatever has
// none is refused.
func TestLicencesOfPackages(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/third_party/b/LICENSE": "of b", "a/third_party/b/license.go": "package b",
		"a/other/COPYING": "of another", "a/x.go": "package a",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := linked{name: "m@v1", root: root, dirs: []string{filepath.Join(root, "a")}}
	if texts, err := m.licences(); err == nil || !strings.Contains(err.Error(), "m@v1 has no") {
		t.Errorf("without a licence: %v, %v", texts, err)
	}
	m.dirs = append(m.dirs, filepath.Join(root, "a/third_party/b"))
	texts, err := m.licences()
	if err != nil || len(texts) != 1 || texts["a/third_party/b/LICENSE"] != "of b" {
		t.Errorf("%v, %v", texts, err)
	}
	out := string(write("x", map[string][]string{"text": {"m@v1, L", "n@v2, L"}, "b": {"a@v0, L"}}))
	if strings.Count(out, "\ntext\n") != 1 || strings.Index(out, "a@v0") > strings.Index(out, "m@v1") {
		t.Errorf("the notice is\n%s", out)
	}
}
