package flexnode

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// A version without a known digest is refused, with a list of known ones, unless its owner accepts
// the risk or the operator has set a digest.
func TestUnknownVersions(t *testing.T) {
	w := newWorld(t)
	known := func() bool {
		c := find(StatusOf(Evidence{Node: *w.node}).Conditions, VersionsKnown)
		return c == nil || c.Status != "False" || !strings.Contains(c.Message, "containerd 2.3.99")
	}
	want := Versions{Containerd: "2.3.99", NPD: "0.0.1"}
	_, problems := w.decide(Desired{Versions: want})
	if len(problems) != 2 || problems[0].Target != "properties.versions.containerd" ||
		!strings.Contains(problems[0].Message, "2.2.7") ||
		problems[1].Target != "properties.versions.npd" {
		t.Fatalf("%v", problems)
	}
	want.AllowUnknown = true
	w.put(Desired{Versions: want})
	if v := w.node.Chosen.Versions; v.Containerd != "2.3.99" || v.NPD != "0.0.1" || v.AllowUnknown {
		t.Errorf("%+v", v)
	}
	expect(t, "nothing is said about it", known(), false)
	want.AllowUnknown = false // running versions may remain
	w.put(Desired{Versions: want, NodeConfig: NodeConfig{MaxPods: 20}})
	want.Containerd = "2.3.98"
	if _, problems = w.decide(Desired{Versions: want}); len(problems) != 1 {
		t.Errorf("another one: %v", problems)
	}
	want.Containerd = "2.2.7"
	w.put(Desired{Versions: want})
	expect(t, "a version that is known is said to be", known(), true)

	w = newWorld(t)
	digest := strings.Repeat("a", 64)
	w.defaults(object{"artifacts": object{"overrides": object{
		"containerd": object{"sha256": digest, "url": "https://mirror.example/containerd.tar.gz"},
	}}})
	w.put(Desired{Versions: Versions{Containerd: "2.3.99"}})

	w = newWorld(t)
	w.defaults(object{"artifacts": object{"overrides": object{
		"containerd@2.3.99": object{"sha256": digest},
	}}})
	w.put(Desired{Versions: Versions{Containerd: "2.3.99"}})
	if _, problems = w.decide(Desired{Versions: Versions{
		Containerd: "2.3.98"}}); len(problems) != 1 {
		t.Errorf("another version than the overridden one: %v", problems)
	}
}

// Removing all versions selects the newest, whatever was allowed before.
func TestVersionsAreTakenBack(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{Versions: Versions{Runc: "9.9.9", AllowUnknown: true}})
	w.put(Desired{Versions: Versions{AllowUnknown: true}})
	expect(t, "runc is as it was still", w.node.Chosen.Versions.Runc == "9.9.9", false)
}

// A vulnerable version is refused, unless the owner allows it; a node's present one may stay.
func TestVulnerableVersions(t *testing.T) {
	allowed := func(n Node) bool {
		return strings.Contains(string(encode(ownLayer(n, ""))), `"artifacts":{"allowVulnerable":true}`)
	}
	w := newWorld(t)
	want := Versions{Runc: "1.3.2"}
	_, problems := w.decide(Desired{Versions: want})
	if len(problems) != 1 || problems[0].Target != "properties.versions.runc" ||
		!strings.Contains(problems[0].Message, "CVE-2025-31133") ||
		!strings.Contains(problems[0].Message, "versions.allowVulnerable") {
		t.Fatalf("%v", problems)
	}
	want.AllowVulnerable = true
	w.put(Desired{Versions: want})
	if v := w.node.Chosen.Versions; v.Runc != "1.3.2" || v.AllowVulnerable || !allowed(*w.node) {
		t.Errorf("%+v, %s", v, encode(ownLayer(*w.node, "")))
	}
	want.AllowVulnerable = false
	w.put(Desired{Versions: want, NodeConfig: NodeConfig{MaxPods: 20}})
	expect(t, "the agent takes what its node has", allowed(*w.node), true)
	want.Runc = "1.3.1"
	if _, problems = w.decide(Desired{Versions: want}); len(problems) != 1 {
		t.Errorf("another one: %v", problems)
	}
	want.Runc = "1.3.4"
	w.put(Desired{Versions: want})
	expect(t, "the agent may run what is not allowed", allowed(*w.node), false)

	w = newWorld(t)
	w.defaults(object{"artifacts": object{"overrides": object{
		"runc": object{"sha256": strings.Repeat("a", 64)},
	}}})
	w.put(Desired{Versions: Versions{Runc: "1.3.2"}}) // the operator's own build
}

var olderTable = Versions{
	Kubernetes: "1.34.1", Containerd: "2.1.0", Runc: "1.3.0", CNI: "1.8.0", NPD: "1.33.0",
}

// Versions that the owner leaves open stay as chosen (M6): even if he changes something else,
// including one of the versions, after an upgrade of the cluster and with a newer table.
func TestWhatIsLeftOpenStays(t *testing.T) {
	chosen := olderTable
	newest := versionsOf(release.Set{Kubernetes: "1.36.3"}.Filled())
	with := func(change func(*Versions)) Versions {
		v := chosen
		change(&v)
		return v
	}
	runc := Versions{Runc: "1.3.4"}
	tests := map[string]struct{ asked, want, chosen, result Versions }{
		"a node that is made": {result: newest},
		"nothing is asked":    {chosen: chosen, result: chosen},
		"one version is asked": {
			want: runc, chosen: chosen, result: with(func(v *Versions) { v.Runc = "1.3.4" }),
		},
		"another one is asked": {
			asked: runc, want: Versions{Runc: "1.3.5"},
			chosen: with(func(v *Versions) { v.Runc = "1.3.4" }),
			result: with(func(v *Versions) { v.Runc = "1.3.5" }),
		},
		"a version is cleared": {
			asked: Versions{Runc: "1.3.4", CNI: "1.8.0"}, want: Versions{CNI: "1.8.0"},
			chosen: with(func(v *Versions) { v.Runc = "1.3.4" }),
			result: with(func(v *Versions) {
				v.Runc = release.Set{Containerd: v.Containerd}.Filled().Runc
			}),
		},
		"all versions are cleared": {asked: runc, chosen: chosen, result: newest},
		"with a v": {
			want: Versions{Kubernetes: "v1.35.2"}, chosen: chosen,
			result: with(func(v *Versions) { v.Kubernetes = "1.35.2" }),
		},
		"an older Kubernetes is asked for a node that is made": {
			want:   Versions{Kubernetes: "1.34.4"},
			result: versionsOf(release.Set{Kubernetes: "1.34.4"}.Filled()),
		},
		"a later patch than the cluster's": {
			want: Versions{Kubernetes: "1.36.4"}, chosen: chosen,
			result: with(func(v *Versions) { v.Kubernetes = "1.36.4" }),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, problems := chooser{
				want: tt.want, asked: tt.asked, chosen: tt.chosen, server: "1.36.3",
			}.choose()
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			expect(t, "the result", got, tt.result)
		})
	}
}

// A node of a cluster whose version works with no known one must set its own; one of a cluster
// whose patch version is unknown gets the previous patch.
func TestOpenVersionOfAnUnknownCluster(t *testing.T) {
	_, problems := chooser{server: "1.41.0"}.choose()
	if len(problems) != 1 || problems[0].Target != atKubernetes ||
		!strings.Contains(problems[0].Message, "1.41.0") {
		t.Errorf("%v", problems)
	}
	got, problems := chooser{server: "1.34.99"}.choose()
	if k, _ := release.KubernetesFor("1.34.99"); got.Kubernetes != k || len(problems) > 0 {
		t.Errorf("%+v, %v", got, problems)
	}
	if got, problems := (chooser{}).choose(); got.Kubernetes != "" || got.Containerd != "" ||
		len(problems) > 0 {
		t.Errorf("while the cluster is not known: %+v, %v", got, problems)
	}
	cleared := chooser{
		asked: Versions{Kubernetes: "1.34.4"}, chosen: Versions{Kubernetes: "1.34.4"},
	}
	if got, problems := cleared.choose(); got.Kubernetes != "" || len(problems) > 0 {
		t.Errorf("cleared while the cluster is not known: %+v, %v", got, problems)
	}
}

// A cluster far ahead only keeps an owner from versions that do not work with it.
func TestAnOldNodeCanBeChanged(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{Versions: Versions{Kubernetes: "1.34.4"}})
	w.reach(someFacts(), "1.40.0")
	changed := Desired{
		Versions: Versions{Kubernetes: "1.34.4"}, NodeConfig: NodeConfig{MaxPods: 9},
	}
	w.put(changed)
	changed.Versions.Kubernetes = "1.34.5"
	_, problems := w.decide(changed)
	expect(t, "what is refused", targets(problems), "properties.versions.kubernetes")
}
