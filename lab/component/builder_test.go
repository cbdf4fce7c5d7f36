package component

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tiny returns a component without dependencies, which builds in a second.
func tiny(source string) Component {
	return Component{
		Name: "tiny", Version: "1.2.3",
		Sources: map[string][]byte{
			"go.mod": []byte("module tiny\n\ngo 1.26.0\n"), "cmd/main.go": []byte(source),
		},
		Builds: []Build{{LDFlags: []string{"-X main.version=v1.2.3"}, Programs: []Program{
			{Name: "renamed", Package: "./cmd", Version: []string{"--version"}, Prints: "tiny v1.2.3"},
		}}},
	}
}

const good = "package main\n\nvar version string\n\nfunc main() { println(\"tiny\", version) }\n"

// builder returns a Builder that records its phases.
func builder(cache string, phases *[]Phase) Builder {
	return Builder{Cache: cache, Log: slog.New(slog.DiscardHandler), Progress: func(e Event) {
		if n := len(*phases); n == 0 || (*phases)[n-1] != e.Phase {
			*phases = append(*phases, e.Phase)
		}
	}}
}

func TestBuildOnce(t *testing.T) {
	cache, phases := t.TempDir(), []Phase(nil)
	b := builder(cache, &phases)
	if found, err := b.Find(t.Context(), tiny(good)); found != "" || err != nil {
		t.Errorf("an empty cache has %q (%v)", found, err)
	}
	dir, err := b.Build(t.Context(), tiny(good))
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Build(t.Context(), tiny(good))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := b.Find(t.Context(), tiny(good)); found != dir || err != nil {
		t.Errorf("the cache has %q (%v), want %s", found, err, dir)
	}
	if again != dir {
		t.Errorf("the second build gave %s, the first %s", again, dir)
	}
	if diff := cmp.Diff([]Phase{Building, Verifying, Finished, Cached}, phases); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"renamed"}, list(t, dir)); diff != "" {
		t.Error(diff)
	}
	out, err := exec.Command(filepath.Join(dir, "renamed")).CombinedOutput()
	if err != nil || string(out) != "tiny v1.2.3\n" {
		t.Errorf("the program prints %q (%v)", out, err)
	}
	other, err := b.Build(t.Context(), tiny(good+"\n// changed\n"))
	if err != nil {
		t.Fatal(err)
	}
	if other == dir {
		t.Error("another source gave the same directory")
	}
}

func TestBuildFails(t *testing.T) {
	unstamped := tiny(good)
	unstamped.Builds[0].LDFlags = []string{"-X main.wrong=v1.2.3"}
	unnamed := tiny(good)
	unnamed.Builds[0].Programs[0].Package = "./missing"
	outside := tiny(good)
	outside.Sources["../escaped.go"] = []byte("package escaped\n")
	tests := map[string]struct {
		component Component
		want      []string
	}{
		"compile error": {tiny("package main\n\nfunc main() { undefined() }\n"),
			[]string{"cannot build tiny-1.2.3", "undefined: undefined"}},
		"no version": {unstamped, []string{"renamed does not print \"tiny v1.2.3\""}},
		"no package": {unnamed, []string{"cannot build tiny-1.2.3", "missing"}},
		"no module": {Component{Name: "empty", Version: "1.0.0"},
			[]string{"cannot build empty-1.0.0", "no go.mod"}},
		"escape": {outside, []string{"\"../escaped.go\" is outside the module"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache, phases := t.TempDir(), []Phase(nil)
			_, err := builder(cache, &phases).Build(t.Context(), test.component)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q: %v", want, err)
				}
			}
			nothingLeft(t, cache)
		})
	}
}

func TestBuildWithoutGo(t *testing.T) {
	b := Builder{Cache: t.TempDir(), Go: "no-such-go-command", Log: slog.New(slog.DiscardHandler)}
	_, err := b.Build(t.Context(), tiny(good))
	if err == nil || !strings.Contains(err.Error(), "install Go and add it to PATH") {
		t.Errorf("error is %v", err)
	}
}

func TestBuildIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cache := t.TempDir()
	b := Builder{Cache: cache, Log: slog.New(slog.DiscardHandler), Progress: func(e Event) {
		if e.Phase == Building {
			cancel()
		}
	}}
	if _, err := b.Build(ctx, tiny(good)); err == nil {
		t.Error("no error")
	}
	nothingLeft(t, cache)
}

func nothingLeft(t *testing.T, cache string) {
	t.Helper()
	for _, left := range list(t, cache) {
		if !strings.HasSuffix(left, ".lock") {
			t.Errorf("%s was left behind", left)
		}
	}
}

func TestExecutable(t *testing.T) {
	tests := map[string]string{
		"k8s.io/kubernetes/cmd/kubelet":  "kubelet",
		"go.etcd.io/etcd/server/v3":      "server",
		"github.com/opencontainers/runc": "runc",
		"./pause":                        "pause",
		"example.com/vrf":                "vrf",
		"example.com/v":                  "v",
	}
	for pkg, want := range tests {
		if got := executable(pkg); got != want {
			t.Errorf("executable(%q) is %q, want %q", pkg, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	r := &run{component: Component{Name: "tiny", Version: "1.2.3"}}
	said := r.count(strings.NewReader("go: downloading example.com/a v1.0.0\nruntime\n" +
		"example.com/a\n# example.com/b\nb.go:1:2: undefined: x\n"))
	if r.downloaded != 1 || r.compiled != 2 {
		t.Errorf("counted %d modules and %d packages", r.downloaded, r.compiled)
	}
	if diff := cmp.Diff("# example.com/b\nb.go:1:2: undefined: x", said); diff != "" {
		t.Error(diff)
	}
}
