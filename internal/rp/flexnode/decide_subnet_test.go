package flexnode

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// The subnet of a node is kept, and is asked for once.
func TestSubnetStays(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{})
	if w.node.Chosen.PodCIDR != "" {
		t.Errorf("a subnet without a pool: %+v", w.node.Chosen)
	}
	w.parent.Cluster.Properties.PodCIDR, w.parent.Cluster.Properties.NodeCIDRMask =
		"10.200.0.0/16", 24
	if got := w.put(api.Desired{}); got.Changed {
		t.Error("a pool changed a node that nobody has changed")
	}
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 9}})
	subnet := w.node.Chosen.PodCIDR
	if !strings.HasPrefix(subnet, "10.200.") ||
		!strings.Contains(w.config(w.last()), `"podCIDR":"`+subnet+`"`) {
		t.Errorf("%+v", w.node.Chosen)
	}
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 10}})
	if w.node.Chosen.PodCIDR != subnet {
		t.Errorf("the subnet changed from %s to %s", subnet, w.node.Chosen.PodCIDR)
	}
}

// Pods reach the network of the cluster's subnets with their own addresses, unless the operator has
// said which networks these are. A node that was rendered without it stays so, whatever its owner
// changes and becomes of the cluster.
func TestPodNetwork(t *testing.T) {
	w := newWorld(t)
	network := func() any {
		t.Helper()
		whole := must(Config(*w.last(), w.layers[w.last().Defaults], w.parent.FactsLayer, Grants{}))
		return whole["cni"].(object)[directNetworks]
	}
	change := func(maxPods int) {
		t.Helper()
		w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: maxPods}})
	}
	change(9)
	pool := &w.parent.Cluster.Properties
	pool.PodCIDR, pool.NodeCIDRMask = "FD00:1::/48", 64
	change(9)
	change(10)
	facts := someFacts()
	facts.DNSServiceIP = "10.96.0.11"
	w.reach(facts, "1.35.4")
	if w.refresh() == nil || network() != nil {
		t.Errorf("a node without has it now: %v", network())
	}
	w.remove()
	for _, maxPods := range []int{9, 10} {
		change(maxPods)
		if diff := cmp.Diff([]any{"fd00:1::/48"}, network()); diff != "" {
			t.Errorf("maxPods %d (-want +got):\n%s", maxPods, diff)
		}
	}
	given := []any{"10.0.0.0/8"}
	w.defaults(object{"cni": object{directNetworks: given}})
	change(11)
	if diff := cmp.Diff(given, network()); diff != "" {
		t.Errorf("the operator's is lost (-want +got):\n%s", diff)
	}
	w.defaults(nil)
	for _, none := range []string{"::ffff:10.0.0.0/112", ""} {
		pool.PodCIDR = none
		if got := w.parent.podNetwork(); got != "" {
			t.Errorf("%q gives %q", none, got)
		}
	}
}

// A node that could not be rendered before has the network as soon as it can be.
func TestPodNetworkOfANodeThatWaits(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	pool := &w.parent.Cluster.Properties
	pool.PodCIDR, pool.NodeCIDRMask = "10.200.0.0/16", 24
	w.put(api.Desired{})
	w.reach(someFacts(), "1.35.4")
	if r := w.refresh(); r == nil ||
		!strings.Contains(w.config(r), `"nonMasqueradeCIDRs":["10.200.0.0/16"]`) {
		t.Errorf("%+v", r)
	}
}
