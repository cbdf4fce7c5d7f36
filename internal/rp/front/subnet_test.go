package front

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

func TestPodSubnets(t *testing.T) {
	w := beside(t)
	w.register(`"podCidr":"10.200.0.0/22","nodeCidrMask":24`)
	taken := map[string]bool{}
	subnet := func(name string) string {
		_, text := w.must(201, "PUT", nodeURL(name), `{"properties":{}}`)
		cni, _ := shownNode(t, text).Properties.Config["cni"].(map[string]any)
		s, _ := cni["podCIDR"].(string)
		return s
	}
	for i := range 4 {
		s := subnet(fmt.Sprintf("n%d", i))
		if taken[s] || !strings.HasPrefix(s, "10.200.") {
			t.Errorf("n%d got %q; taken are %v", i, s, taken)
		}
		taken[s] = true
	}
	w.refused(409, "PodCIDRExhausted", "PUT", nodeURL("n4"), `{"properties":{}}`)
	w.must(200, "DELETE", nodeURL("n2"), "")
	if s := subnet("n5"); !taken[s] {
		t.Errorf("n5 got %q, which nobody gave back", s)
	}
	w.must(400, "PUT", cluster+versionQuery, `{"location":"westeurope","properties":
		{"podCidr":"10.201.0.0/22","nodeCidrMask":24}}`)
}

// After a restore no pod subnet is given out until it is known which ones the cluster's Nodes have;
// nodes that have one can be changed (M26).
func TestPodSubnetsAfterARestore(t *testing.T) {
	w := beside(t)
	w.register(`"podCidr":"10.200.0.0/22","nodeCidrMask":24`)
	w.must(201, "PUT", nodeURL("n1"), `{"properties":{}}`)
	s := w.api.Store
	w.change(func(v *store.View) error { _, err := s.RaiseEpoch(v); return err })
	w.api.Patience = time.Millisecond
	response, text := w.must(503, "PUT", nodeURL("n2"), `{"properties":{}}`)
	if code(text) != "PodSubnetsNotKnown" || response.Header.Get("Retry-After") == "" {
		t.Error(text, response.Header)
	}
	w.must(200, "PUT", nodeURL("n1"), `{"properties":{"nodeConfig":{"maxPods":40}}}`)
	edit(w, s.Clusters, clusterKey, func(c *flexnode.Cluster) { c.SubnetsEpoch = 2 })
	w.must(201, "PUT", nodeURL("n2"), `{"properties":{}}`)
}

// A registration may be of a cluster whose former one was deleted, with machines that run on: no
// pod subnet is given out until its Nodes have been seen, for which a PUT waits. Nodes that have no
// use for one do not wait.
func TestPodSubnetsOfANewRegistration(t *testing.T) {
	w := beside(t)
	w.fails()
	w.must(201, "PUT", clusterURL,
		`{"location":"westeurope","properties":{"podCidr":"10.200.0.0/22","nodeCidrMask":24}}`)
	w.refused(503, "PodSubnetsNotKnown", "PUT", nodeURL("n1"), `{"properties":{}}`)
	w.must(404, "GET", nodeURL("n1"), "")
	w.api.Patience = 20 * time.Second
	waits := w.calls("read")
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.must(201, "PUT", nodeURL("n1"), `{"properties":{}}`)
	}()
	w.until("the PUT waits", func() bool { return waits.Load() > 0 })
	w.cluster.isDown.Store(false)
	<-done
	if w.storedNode("n1").Chosen.PodCIDR == "" {
		t.Error("it has no pod subnet")
	}
}

// A pool of many subnets that is full at the first guesses still gives one.
func TestPodSubnetsBeyondTheGuesses(t *testing.T) {
	w := beside(t)
	w.register(`"podCidr":"10.200.0.0/19","nodeCidrMask":24`)
	taken := map[string]bool{}
	for i := range 32 {
		n := w.node(201, "PUT", nodeURL(fmt.Sprintf("n%d", i)), `{"properties":{}}`)
		s, _ := n.Properties.Config["cni"].(map[string]any)["podCIDR"].(string)
		if taken[s] {
			t.Errorf("n%d got %q again", i, s)
		}
		taken[s] = true
	}
	w.must(409, "PUT", nodeURL("more"), `{"properties":{}}`)
}
