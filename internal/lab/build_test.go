package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/lab/component"
)

// A demo builds one Kubernetes, one containerd and nothing twice; the versions that only upgrades
// start from are left until they are used.
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
	got := chosen(ofSystem, Newest.needs, Oldest.needs, Patched.needs, isHelm)
	if len(got) != len(all) {
		t.Errorf("with all versions and helm %q are built, want all of %q", got, all)
	}
}

// docs/versions.md and docs/lab.md tell what the lab is made of.
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
		"versions.md": {
			"| control plane, kube-proxy | " + Newest.Kubernetes + " |", node("newest node", Newest),
			node("patched node", Patched), node("oldest node", Oldest),
			"Beside them " + strings.Join(beside, ", ") + ".",
		},
		"lab.md": {
			fmt.Sprintf("`--kubernetes %s`, `%s` or `%s`, `--containerd %s` or `%s`; the\n"+
				"control plane is %s.", Oldest.Kubernetes, Patched.Kubernetes, Newest.Kubernetes,
				Oldest.Containerd, Newest.Containerd, Newest.Kubernetes),
		},
	} {
		text, err := os.ReadFile("../../docs/" + path)
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
