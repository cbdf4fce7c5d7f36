package flexnode

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/release"
)

var olderTable = api.Versions{
	Kubernetes: "1.34.1", Containerd: "2.1.0", Runc: "1.3.0", CNI: "1.8.0", NPD: "1.33.0",
}

// What the owner leaves open remains as it was chosen (M6): also when he changes something else,
// one of the versions included, after an upgrade of the cluster and with a newer table.
func TestWhatIsLeftOpenStays(t *testing.T) {
	chosen := olderTable
	newest := versionsOf(release.Set{Kubernetes: "1.36.3"}.Filled())
	with := func(change func(*api.Versions)) api.Versions {
		v := chosen
		change(&v)
		return v
	}
	runc := api.Versions{Runc: "1.3.4"}
	tests := map[string]struct{ asked, want, chosen, result api.Versions }{
		"a node that is made": {result: newest},
		"nothing is asked":    {chosen: chosen, result: chosen},
		"one version is asked": {
			want: runc, chosen: chosen, result: with(func(v *api.Versions) { v.Runc = "1.3.4" }),
		},
		"another one is asked": {
			asked: runc, want: api.Versions{Runc: "1.3.5"},
			chosen: with(func(v *api.Versions) { v.Runc = "1.3.4" }),
			result: with(func(v *api.Versions) { v.Runc = "1.3.5" }),
		},
		"a version is cleared": {
			asked: api.Versions{Runc: "1.3.4", CNI: "1.8.0"}, want: api.Versions{CNI: "1.8.0"},
			chosen: with(func(v *api.Versions) { v.Runc = "1.3.4" }),
			result: with(func(v *api.Versions) {
				v.Runc = release.Set{Containerd: v.Containerd}.Filled().Runc
			}),
		},
		"all versions are cleared": {asked: runc, chosen: chosen, result: newest},
		"with a v": {
			want: api.Versions{Kubernetes: "v1.35.2"}, chosen: chosen,
			result: with(func(v *api.Versions) { v.Kubernetes = "1.35.2" }),
		},
		"an older Kubernetes is asked for a node that is made": {
			want:   api.Versions{Kubernetes: "1.34.4"},
			result: versionsOf(release.Set{Kubernetes: "1.34.4"}.Filled()),
		},
		"a later patch than the cluster's": {
			want: api.Versions{Kubernetes: "1.36.4"}, chosen: chosen,
			result: with(func(v *api.Versions) { v.Kubernetes = "1.36.4" }),
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
			if diff := cmp.Diff(tt.result, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A node of a cluster whose version goes with none that is known must say its own, and one of a
// cluster whose own patch is not known has the one before.
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
		asked: api.Versions{Kubernetes: "1.34.4"}, chosen: api.Versions{Kubernetes: "1.34.4"},
	}
	if got, problems := cleared.choose(); got.Kubernetes != "" || len(problems) > 0 {
		t.Errorf("cleared while the cluster is not known: %+v, %v", got, problems)
	}
}

// The same through PUTs: a change of anything keeps each version that is not asked for.
func TestPutsKeepVersions(t *testing.T) {
	g := generator(t)
	for range 300 {
		w := newWorld(t)
		d := randomDesired(g)
		d.Versions = api.Versions{}
		w.put(d)
		older := *w.node
		older.Chosen.Versions = olderTable
		w.node = &older
		was := older.Chosen
		w.reach(someFacts(), "1.36.2")
		w.now = w.now.Add(time.Minute)
		d.NodeConfig.Labels = map[string]string{"changed": "yes"}
		d.Versions.Runc = pick(g, "", "1.3.4")
		if got := w.put(d); got.Revision == nil {
			t.Fatal("a change made no revision")
		}
		if d.Versions.Runc != "" {
			was.Versions.Runc = d.Versions.Runc
		}
		if diff := cmp.Diff(was, w.node.Chosen); diff != "" {
			t.Fatalf("a change of a label changed what was chosen:\n%s", diff)
		}
	}
}

// A cluster that was upgraded far away from a node keeps its owner from nothing but from asking for
// versions that do not go with it.
func TestAnOldNodeCanBeChanged(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{Versions: api.Versions{Kubernetes: "1.34.4"}})
	w.reach(someFacts(), "1.40.0")
	changed := api.Desired{
		Versions: api.Versions{Kubernetes: "1.34.4"}, NodeConfig: api.NodeConfig{MaxPods: 9},
	}
	w.put(changed)
	changed.Versions.Kubernetes = "1.34.5"
	if _, problems := w.decide(changed); len(problems) != 1 ||
		problems[0].Target != "properties.versions.kubernetes" {
		t.Errorf("%v", problems)
	}
}
