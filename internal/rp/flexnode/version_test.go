package flexnode

import (
	"cmp"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// A version without a known digest is refused, with a list of known ones, unless its owner accepts
// the risk or the operator has set a digest.
func TestUnknownVersions(t *testing.T) {
	w := newWorld(t)
	asks := func(v Versions) Problems {
		_, problems := w.decide(Desired{Versions: v})
		return problems
	}
	known := func() bool {
		c := find(StatusOf(Evidence{Node: *w.node}).Conditions, VersionsKnown)
		return c == nil || c.Status != "False" || !strings.Contains(c.Message, "containerd 2.3.99")
	}
	want := Versions{Containerd: "2.3.99", NPD: "0.0.1"}
	problems := asks(want)
	expect(t, "unknown versions", targets(problems),
		"properties.versions.containerd properties.versions.npd")
	has(t, "the problem", problems[0].Message, "2.2.7")
	want.AllowUnknown = true
	w.put(Desired{Versions: want})
	v := w.node.Chosen.Versions
	shows(t, "what is chosen", "2.3.99 0.0.1 false", v.Containerd, v.NPD, v.AllowUnknown)
	expect(t, "nothing is said about it", known(), false)
	want.AllowUnknown = false // running versions may remain
	w.put(Desired{Versions: want, NodeConfig: NodeConfig{MaxPods: 20}})
	want.Containerd = "2.3.98"
	expect(t, "problems of another one", len(asks(want)), 1)
	want.Containerd = "2.2.7"
	w.put(Desired{Versions: want})
	expect(t, "a version that is known is said to be", known(), true)

	for name, more := range map[string]object{
		"containerd":        {"url": "https://mirror.example/containerd.tar.gz"},
		"containerd@2.3.99": {},
	} {
		w = newWorld(t)
		more["sha256"] = strings.Repeat("a", 64)
		w.defaults(object{"artifacts": object{"overrides": object{name: more}}})
		w.put(Desired{Versions: Versions{Containerd: "2.3.99"}})
		if name != "containerd" {
			expect(t, "problems of another than the overridden one",
				len(asks(Versions{Containerd: "2.3.98"})), 1)
		}
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
	expect(t, "a vulnerable version", targets(problems), "properties.versions.runc")
	has(t, "the problem", problems[0].Message, "CVE-2025-31133", "versions.allowVulnerable")
	want.AllowVulnerable = true
	w.put(Desired{Versions: want})
	v := w.node.Chosen.Versions
	shows(t, "what is chosen", "1.3.2 false true", v.Runc, v.AllowVulnerable, allowed(*w.node))
	want.AllowVulnerable = false
	w.put(Desired{Versions: want, NodeConfig: NodeConfig{MaxPods: 20}})
	expect(t, "the agent takes what its node has", allowed(*w.node), true)
	want.Runc = "1.3.1"
	_, problems = w.decide(Desired{Versions: want})
	expect(t, "problems of another one", len(problems), 1)
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
	with := func(kubernetes, runc string) Versions {
		v := chosen
		v.Kubernetes, v.Runc = cmp.Or(kubernetes, v.Kubernetes), cmp.Or(runc, v.Runc)
		return v
	}
	runc := Versions{Runc: "1.3.4"}
	for name, tt := range map[string]struct{ asked, want, chosen, result Versions }{
		"a node that is made":  {result: newest},
		"nothing is asked":     {chosen: chosen, result: chosen},
		"one version is asked": {want: runc, chosen: chosen, result: with("", "1.3.4")},
		"another one is asked": {asked: runc, want: Versions{Runc: "1.3.5"},
			chosen: with("", "1.3.4"), result: with("", "1.3.5")},
		"a version is cleared": {asked: Versions{Runc: "1.3.4", CNI: "1.8.0"},
			want: Versions{CNI: "1.8.0"}, chosen: with("", "1.3.4"),
			result: with("", release.Set{Containerd: chosen.Containerd}.Filled().Runc)},
		"all versions are cleared": {asked: runc, chosen: chosen, result: newest},
		"with a v": {want: Versions{Kubernetes: "v1.35.2"}, chosen: chosen,
			result: with("1.35.2", "")},
		"an older Kubernetes is asked for a node that is made": {
			want:   Versions{Kubernetes: "1.34.4"},
			result: versionsOf(release.Set{Kubernetes: "1.34.4"}.Filled())},
		"a later patch than the cluster's": {want: Versions{Kubernetes: "1.36.4"}, chosen: chosen,
			result: with("1.36.4", "")},
	} {
		got, problems := chooser{
			want: tt.want, asked: tt.asked, chosen: tt.chosen, server: "1.36.3",
		}.choose()
		expect(t, name, got, tt.result)
		expect(t, name+": problems", problems, nil)
	}
}

// A node of a cluster whose version works with no known one must set its own; one of a cluster
// whose patch version is unknown gets the previous patch.
func TestOpenVersionOfAnUnknownCluster(t *testing.T) {
	_, problems := chooser{server: "1.41.0"}.choose()
	expect(t, "with an unknown cluster", targets(problems), atKubernetes)
	has(t, "the problem", problems[0].Message, "1.41.0")
	got, problems := chooser{server: "1.34.99"}.choose()
	k, _ := release.KubernetesFor("1.34.99")
	shows(t, "with an unknown patch", k+" 0", got.Kubernetes, len(problems))
	got, problems = chooser{}.choose()
	shows(t, "while the cluster is not known", "  0", got.Kubernetes, got.Containerd, len(problems))
	was := Versions{Kubernetes: "1.34.4"}
	got, problems = chooser{asked: was, chosen: was}.choose()
	shows(t, "cleared while the cluster is not known", " 0", got.Kubernetes, len(problems))
}

// A cluster far ahead only keeps an owner from versions that do not work with it.
func TestAnOldNodeCanBeChanged(t *testing.T) {
	w := newWorld(t)
	changed := kubernetes("1.34.4")
	w.put(changed)
	w.reach(someFacts(), "1.40.0")
	changed.NodeConfig.MaxPods = 9
	w.put(changed)
	changed.Versions.Kubernetes = "1.34.5"
	_, problems := w.decide(changed)
	expect(t, "what is refused", targets(problems), "properties.versions.kubernetes")
}
