package e2e

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/conformance"
)

// Some of Kubernetes' conformance tests pass on a flex node. They may use every node of the
// cluster, so no other test runs at the same time.
func TestConformance(t *testing.T) {
	peer(t)
	conform(t, conformance.Few())
}

// The quick set passes after each kind of change of a node: an upgrade of minor versions, of a
// patch and of containerd, and the downgrade.
func TestConformanceAfterChanges(t *testing.T) {
	if !long() {
		t.Skip("LONG is not set: it needs the cluster to itself")
	}
	m := bareMachine(t, "conforming")
	configure(t, m, lab.Oldest)
	serve(t, m)
	list, err := bench.Kubectl(t.Context(), "", "get", "nodes", "-o", "name")
	if err != nil || strings.TrimSpace(list) != "node/"+m.Name {
		t.Fatalf("the tests would run on other nodes: %v\n%s", err, list)
	}
	patched := lab.Versions{Kubernetes: lab.Newest.Kubernetes, Containerd: lab.Former.Containerd}
	for _, v := range []lab.Versions{lab.Former, patched, lab.Newest, lab.Former} {
		change(t, m, v)
		conform(t, conformance.Quick())
	}
}

// conform runs conformance tests, all of which must pass.
func conform(t *testing.T, names []string) {
	t.Helper()
	var said strings.Builder
	suite, err := conformance.New(t.Context(), bench, 5, &said)
	if err != nil {
		t.Fatal(err)
	}
	got, err := suite.Run(t.Context(), names)
	if err != nil || got.Passed != len(names) {
		t.Errorf("%s: %v\n%s\n%s", got, err, strings.Join(got.Failed, "\n"), &said)
	}
	t.Log(got)
}
