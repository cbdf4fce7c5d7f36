package lab

import (
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
		"etcd-3.6.16", "kubernetes-control-plane-" + Newest.Kubernetes,
		"kubernetes-node-" + Newest.Kubernetes,
		"containerd-" + Newest.Containerd, "runc-" + runcVersion, "cni-plugins-" + cniVersion,
		"node-problem-detector-" + npdVersion,
	}
	if diff := cmp.Diff(demo, chosen(ofSystem, Newest.needs)); diff != "" {
		t.Error(diff)
	}
	if got := chosen(ofSystem, Newest.needs, Oldest.needs); len(got) != len(all) {
		t.Errorf("with both versions %q are built, want all of %q", got, all)
	}
}
