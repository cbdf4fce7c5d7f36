package flexnode

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An own layer is made as it is read when it is stored.
func TestAnOwnLayerIsMadeAsItIsRead(t *testing.T) {
	g := generator(t)
	for range 500 {
		n := Node{ID: nodeID, Desired: complete(withoutSecret(randomDesired(g)))}
		n.Chosen.Versions, n.Chosen.PodCIDR = n.Desired.Versions, pick(g, "", "10.244.7.0/24")
		own := ownLayer(n, pick(g, "", "10.244.0.0/16"))
		if diff := cmp.Diff(must(readObject(encode(own))), own); diff != "" {
			t.Fatalf("%+v (-read +made):\n%s", n.Desired, diff)
		}
	}
}

// Only a list that is there says which networks are direct.
func TestDirectNetworksOfARevision(t *testing.T) {
	for own, want := range map[string]bool{
		"": false, "{": false, "[]": false, "{}": false, `{"cni":null}`: false, `{"cni":{}}`: false,
		`{"agent":{"nonMasqueradeCIDRs":["x"]},"cni":{"podCIDR":"y"},"npd":{}}`: false,
		`{"cni":{"nonMasqueradeCIDRs":null,"version":"1.2.3"}}`:                 false,
		`{"cni":{"nonMasqueradeCIDRs":[],"version":"1.2.3"}}`:                   true,
		`{"azure":{},"cni":{"a":{},"nonMasqueradeCIDRs":["x"]},"npd":{}}`:       true,
	} {
		r := Revision{Own: json.RawMessage(own)}
		if got := r.hasDirectNetworks(); got != want {
			t.Errorf("%s: %v", own, got)
		}
	}
}
