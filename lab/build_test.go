package lab

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/lab/component"
)

// A demo builds one Kubernetes, one containerd and nothing twice. Versions from which only upgrades
// start are built on first use.
func TestBuildOnlyWhatIsUsed(t *testing.T) {
	all, err := component.All()
	if err != nil {
		t.Fatal(err)
	}
	chosen := func(by ...func(component.Component) bool) []string {
		var names []string
		for _, c := range all {
			for _, f := range by {
				if f(c) {
					names = append(names, c.String())
					break
				}
			}
		}
		return names
	}
	demo := []string{
		"etcd-3.6.8", "kubernetes-control-plane-" + Newest.Kubernetes,
		"coredns-1.14.2", "kubernetes-node-" + Newest.Kubernetes,
		"containerd-" + Newest.Containerd, "runc-" + runcVersion, "cni-plugins-" + cniVersion,
		"node-problem-detector-" + npdVersion,
	}
	if diff := cmp.Diff(demo, chosen(ofSystem, Newest.needs)); diff != "" {
		t.Error(diff)
	}
	byName := func(c component.Component) bool {
		return slices.Contains([]string{
			component.Helm, component.KubernetesTests, component.NetworkProxy,
		}, c.Name)
	}
	got := chosen(ofSystem, Newest.needs, Oldest.needs, Former.needs, byName)
	if len(got) != len(all) {
		t.Errorf("with what is used by name %q are built, want all of %q", got, all)
	}
}

// docs/reference/versions.md and docs/how-to/laboratory.md list the lab's versions.
func TestVersionsInDocuments(t *testing.T) {
	node := func(name string, v Versions) string {
		return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", name, v.Kubernetes, v.Containerd,
			runcVersion, cniVersion, npdVersion)
	}
	all, err := component.All()
	if err != nil {
		t.Fatal(err)
	}
	var beside []string
	for _, c := range all {
		if c.Name == component.Etcd {
			beside = append(beside, "etcd "+c.Version)
		}
		if c.Name == component.CoreDNS {
			beside = append(beside, "CoreDNS "+c.Version)
		}
		if c.Name == component.Helm {
			beside = append(beside, "Helm "+c.Version)
		}
	}
	for path, lines := range map[string][]string{
		"reference/versions.md": {
			"| control plane, kube-proxy | " + Newest.Kubernetes + " |", node("newest node", Newest),
			node("former node", Former), node("oldest node", Oldest),
			"Beside them " + strings.Join(beside, ", ") + ".",
		},
		"how-to/laboratory.md": {
			fmt.Sprintf("`--kubernetes %s`, `%s` or `%s`, `--containerd %s` or `%s`; the\n"+
				"control plane is %s.", Oldest.Kubernetes, Former.Kubernetes, Newest.Kubernetes,
				Oldest.Containerd, Newest.Containerd, Newest.Kubernetes),
		},
	} {
		text, err := os.ReadFile("../docs/" + path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(text), line) {
				t.Errorf("docs/%s lacks %q", path, line)
			}
		}
	}
}

// A failed build is reported at once, even during downloads.
func TestFailedBuildIsToldAtOnce(t *testing.T) {
	command := filepath.Join(t.TempDir(), "go")
	const script = "#!/bin/sh\ncase $1 in\nenv) echo go1 ;;\nlist) exec sleep 60 ;;\n" +
		"*) exit 7 ;;\nesac\n"
	if err := os.WriteFile(command, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := component.Builder{Cache: t.TempDir(), Go: command, Log: slog.New(slog.DiscardHandler)}
	began := time.Now()
	_, err := buildAll(t.Context(), b, []component.Component{{Name: "x", Version: "1.2.3",
		Sources: map[string][]byte{"go.mod": []byte("module x\n")},
		Builds:  []component.Build{{Programs: []component.Program{{Name: "x", Package: "./x"}}}}}})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("after %s", took)
	}
	if err == nil || !strings.Contains(err.Error(), "exit status 7") ||
		strings.Contains(err.Error(), "download") {
		t.Errorf("%v", err)
	}
}
