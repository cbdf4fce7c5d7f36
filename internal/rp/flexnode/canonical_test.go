package flexnode

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is canonical here is what encoding/json writes.
func TestCanonicalIsWhatJSONWrites(t *testing.T) {
	g := generator(t)
	words := []string{
		"", "plain", "a.b/c", "quote\"", `back\slash`, "<a&b>", "tab\t", "\x7f", "\x00", "äöü",
		"\u2028", "\xff", "~", " ", "{}", "long-enough-to-be-written-at-once-0123456789",
	}
	var some func(depth int) any
	some = func(depth int) any {
		switch kind := g.IntN(9 + depth); kind {
		case 0:
			return nil
		case 1:
			return g.IntN(2) == 0
		case 2:
			return number(g.IntN(3) * 1000)
		case 3:
			return []string{pick(g, words...)}
		case 4:
			return map[string]string{pick(g, words...): pick(g, words...)}
		case 5:
			return pick[any](g, object(nil), []any(nil), 1.5, int64(7), json.Number("1e3"))
		case 6, 7:
			return pick(g, words...)
		case 8:
			list := []any{}
			for range g.IntN(3) {
				list = append(list, some(max(depth-1, 0)))
			}
			return list
		}
		o := object{}
		for range g.IntN(6) {
			o[pick(g, words...)] = some(depth - 1)
		}
		return o
	}
	for range 5000 {
		o := object{"a": some(4), "b": some(3), pick(g, words...): some(2)}
		want, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(canonical(o))); diff != "" {
			t.Fatalf("(-encoding/json +here):\n%s", diff)
		}
	}
}

// An own layer is made as it is read when it is stored.
func TestAnOwnLayerIsMadeAsItIsRead(t *testing.T) {
	g := generator(t)
	for range 500 {
		n := Node{ID: nodeID, Desired: complete(withoutSecret(randomDesired(g)))}
		n.Chosen.Versions, n.Chosen.PodCIDR = n.Desired.Versions, pick(g, "", "10.244.7.0/24")
		own := ownLayer(n, pick(g, "", "10.244.0.0/16"))
		if diff := cmp.Diff(must(readObject(canonical(own))), own); diff != "" {
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
