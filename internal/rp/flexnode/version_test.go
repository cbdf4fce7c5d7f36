package flexnode

import (
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// A version without a known digest is refused with those that are known, unless its owner takes it
// upon himself, or the operator has set a digest.
func TestUnknownVersions(t *testing.T) {
	known := func(e Evidence) bool {
		for _, c := range StatusOf(e).Conditions {
			if c.Type == VersionsKnown {
				return c.Status != "False" || !strings.Contains(c.Message, "containerd 2.3.99")
			}
		}
		return true
	}
	w := newWorld(t)
	want := api.Versions{Containerd: "2.3.99", NPD: "0.0.1"}
	_, problems := w.decide(api.Desired{Versions: want})
	if len(problems) != 2 || problems[0].Target != "properties.versions.containerd" ||
		!strings.Contains(problems[0].Message, "2.2.7") ||
		problems[1].Target != "properties.versions.npd" {
		t.Fatalf("%v", problems)
	}
	want.AllowUnknown = true
	w.put(api.Desired{Versions: want})
	if v := w.node.Chosen.Versions; v.Containerd != "2.3.99" || v.NPD != "0.0.1" || v.AllowUnknown {
		t.Errorf("%+v", v)
	}
	if known(Evidence{Node: *w.node}) {
		t.Error("nothing is said about it")
	}
	want.AllowUnknown = false // what runs may remain
	w.put(api.Desired{Versions: want, NodeConfig: api.NodeConfig{MaxPods: 20}})
	want.Containerd = "2.3.98"
	if _, problems = w.decide(api.Desired{Versions: want}); len(problems) != 1 {
		t.Errorf("another one: %v", problems)
	}
	want.Containerd = "2.2.7"
	w.put(api.Desired{Versions: want})
	if !known(Evidence{Node: *w.node}) {
		t.Error("a version that is known is said not to be")
	}

	w = newWorld(t)
	digest := strings.Repeat("a", 64)
	w.defaults(object{"artifacts": object{"overrides": object{
		"containerd": object{"sha256": digest, "url": "https://mirror.example/containerd.tar.gz"},
	}}})
	w.put(api.Desired{Versions: api.Versions{Containerd: "2.3.99"}})

	w = newWorld(t)
	w.defaults(object{"artifacts": object{"overrides": object{
		"containerd@2.3.99": object{"sha256": digest},
	}}})
	w.put(api.Desired{Versions: api.Versions{Containerd: "2.3.99"}})
	if _, problems = w.decide(api.Desired{Versions: api.Versions{
		Containerd: "2.3.98"}}); len(problems) != 1 {
		t.Errorf("another version than the overridden one: %v", problems)
	}
}

// To take all versions back asks for the newest, whatever was allowed before.
func TestVersionsAreTakenBack(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{Versions: api.Versions{Runc: "9.9.9", AllowUnknown: true}})
	w.put(api.Desired{Versions: api.Versions{AllowUnknown: true}})
	if v := w.node.Chosen.Versions.Runc; v == "9.9.9" {
		t.Errorf("runc is %s still", v)
	}
}

// A version with which a container can break out is refused, unless its owner allows it; what a node
// has may remain, and its configuration allows it.
func TestVulnerableVersions(t *testing.T) {
	allowed := func(n Node) bool {
		return strings.Contains(string(OwnLayer(n)), `"artifacts":{"allowVulnerable":true}`)
	}
	w := newWorld(t)
	want := api.Versions{Runc: "1.3.2"}
	_, problems := w.decide(api.Desired{Versions: want})
	if len(problems) != 1 || problems[0].Target != "properties.versions.runc" ||
		!strings.Contains(problems[0].Message, "CVE-2025-31133") ||
		!strings.Contains(problems[0].Message, "versions.allowVulnerable") {
		t.Fatalf("%v", problems)
	}
	want.AllowVulnerable = true
	w.put(api.Desired{Versions: want})
	if v := w.node.Chosen.Versions; v.Runc != "1.3.2" || v.AllowVulnerable || !allowed(*w.node) {
		t.Errorf("%+v, %s", v, OwnLayer(*w.node))
	}
	want.AllowVulnerable = false
	w.put(api.Desired{Versions: want, NodeConfig: api.NodeConfig{MaxPods: 20}})
	if !allowed(*w.node) {
		t.Error("the agent would refuse what its node has")
	}
	want.Runc = "1.3.1"
	if _, problems = w.decide(api.Desired{Versions: want}); len(problems) != 1 {
		t.Errorf("another one: %v", problems)
	}
	want.Runc = "1.3.4"
	w.put(api.Desired{Versions: want})
	if allowed(*w.node) {
		t.Error("the agent may run what is not allowed")
	}

	w = newWorld(t)
	w.defaults(object{"artifacts": object{"overrides": object{
		"runc": object{"sha256": strings.Repeat("a", 64)},
	}}})
	w.put(api.Desired{Versions: api.Versions{Runc: "1.3.2"}}) // the operator's own build
}
