package notice

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/packaging"
)

// A notice has the licences of every linked module, also in directories of packages, of Go, and of
// the project.
func TestNotice(t *testing.T) {
	linked, err := modulesOf(t.Context(), &buildinfo.BuildInfo{GoVersion: runtime.Version(),
		Main: debug.Module{Path: packaging.Project},
		Path: "github.com/Azure/AKSFlexNode/cmd/aks-flex-node"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]string{}
	for module, texts := range linked {
		name, _, _ := strings.Cut(module, "@")
		if found[name] = texts; len(texts) == 0 {
			t.Errorf("%s has no licence", module)
		}
	}
	golang := found["Go "+strings.TrimPrefix(runtime.Version(), "go")]
	if !strings.Contains(golang["LICENSE"], "Redistribution and use") || golang["PATENTS"] == "" {
		t.Errorf("of Go: %q", golang)
	}
	for module, file := range map[string]string{"github.com/spf13/cobra": "LICENSE.txt",
		"github.com/klauspost/compress": "zstd/internal/xxhash/LICENSE.txt",
		"github.com/google/uuid":        "LICENSE",
		"k8s.io/apimachinery":           "third_party/forked/golang/LICENSE",
		"github.com/Azure/AKSFlexNode":  "LICENSE"} {
		if found[module][file] == "" {
			t.Errorf("%s has %q", module, found[module])
		}
	}
}

// A licence beside a linked package counts, one beside another package does not. A module without a
// licence is refused.
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
	m := modules{}
	err := m.add("m@v1", root, filepath.Join(root, "a"))
	if out, missing := m.notice("x"); err != nil || missing == nil ||
		!strings.Contains(missing.Error(), "m@v1 has no") {
		t.Errorf("without a licence: %s, %v", out, errors.Join(err, missing))
	}
	err = m.add("m@v1", root, filepath.Join(root, "a/third_party/b"))
	if texts := m["m@v1"]; err != nil || len(texts) != 1 ||
		texts["a/third_party/b/LICENSE"] != "of b" {
		t.Errorf("%v, %v", texts, err)
	}
	out, err := modules{"m@v1": {"L": "text"}, "n@v2": {"L": "text"}, "a@v0": {"L": "b"}}.notice("x")
	if err != nil || bytes.Count(out, []byte("\ntext\n")) != 1 ||
		bytes.Index(out, []byte("a@v0")) > bytes.Index(out, []byte("m@v1")) {
		t.Errorf("%v; the notice is\n%s", err, out)
	}
}
