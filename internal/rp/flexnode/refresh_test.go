package flexnode

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// sameConfig reports whether two revisions are the same configuration.
func sameConfig(r, o Revision) bool {
	return r.Defaults == o.Defaults && r.Facts == o.Facts && r.SecretVersion == o.SecretVersion &&
		bytes.Equal(r.Own, o.Own)
}

// Refresh replaces the facts, and nothing else.
func TestRefreshReplacesTheFacts(t *testing.T) {
	g := generator(t)
	for range 300 {
		w := newWorld(t)
		w.defaults(object{"artifacts": object{"mirror": "https://mirror.example"}})
		w.put(randomDesired(g))
		before, was := *w.node, *w.last()
		if r := w.refresh(); r != nil {
			t.Fatalf("the same facts made a revision: %+v", r)
		}
		f := someFacts()
		f.ServerURL = "https://moved.example"
		w.reach(f, "1.38.0")
		w.defaults(object{"artifacts": object{"mirror": "https://other.example"}})
		w.now = w.now.Add(time.Minute)
		r := w.refresh()
		if r == nil || r.Why != "facts" || r.Facts == was.Facts || r.Version <= was.Version {
			t.Fatalf("%+v", r)
		}
		same := was
		same.Facts = r.Facts
		if !sameConfig(same, *r) {
			t.Fatalf("more than the facts changed:\n%s", cmp.Diff(was, *r))
		}
		after := *w.node
		after.Revision, after.Assigned, after.Facts = before.Revision, before.Assigned, before.Facts
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("more than the version of the node changed:\n%s", diff)
		}
		if !strings.Contains(w.config(r), "https://moved.example") ||
			!strings.Contains(w.config(r), "https://mirror.example") {
			t.Fatal(w.config(r))
		}
	}
}

// A node that waits for its cluster is resolved when the cluster is reached.
func TestWaitingNodeIsResolved(t *testing.T) {
	g := generator(t)
	for range 200 {
		w := newWorld(t)
		w.unreached()
		d := randomDesired(g)
		if got := w.put(d); got.Revision != nil || w.node.State != api.Creating {
			t.Fatalf("%+v", got)
		}
		if r := w.refresh(); r != nil || w.node.State != api.Creating {
			t.Fatalf("%+v", r)
		}
		w.reach(someFacts(), "1.35.4")
		r := w.refresh()
		if r == nil || w.node.State != "" || w.node.Identity != IdentityOf(nodeID, d, tenant) {
			t.Fatalf("%+v, %+v", r, w.node)
		}
		if v := w.node.Chosen.Versions.Kubernetes; d.Versions.Kubernetes == "" && v != "1.35.4" {
			t.Fatalf("Kubernetes %s", v)
		}
		direct := newWorld(t)
		direct.put(d)
		if !sameConfig(*direct.last(), Revision{
			Defaults: r.Defaults, Facts: r.Facts, Own: r.Own,
			SecretVersion: direct.last().SecretVersion,
		}) {
			t.Fatalf("it is not as if the cluster had been there:\n%s", cmp.Diff(direct.last(), r))
		}
	}
}

// A node that was rendered and is waiting for its credential goes on waiting.
func TestRefreshKeepsTheState(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	w.put(api.Desired{})
	w.node.Credential = "c/1"
	w.reach(someFacts(), "1.35.4")
	if w.refresh(); w.node.State != api.Creating {
		t.Errorf("%q", w.node.State)
	}
	w = newWorld(t)
	w.unreached()
	w.put(api.Desired{Versions: api.Versions{Kubernetes: "1.36.0"}})
	w.node.Credential = "c/1"
	w.reach(someFacts(), "1.35.4")
	w.refresh()
	w.reach(someFacts(), "1.36.0")
	if w.refresh(); w.node.State != api.Updating || w.node.Reason != "" {
		t.Errorf("%q %q", w.node.State, w.node.Reason)
	}
}

// A node is at the cluster's facts when its revision is, also if they are stored with another id
// than that of their content: it is not rendered again and again.
func TestRefreshEnds(t *testing.T) {
	for _, id := range []string{"", "OTHER"} {
		w := newWorld(t)
		w.put(api.Desired{})
		if id != "" {
			w.parent.Cluster.Facts = id
		}
		want := w.parent.factsID()
		w.node.Facts = "former"
		w.refresh()
		if w.refresh(); w.node.Facts != want {
			t.Errorf("it is at %s, the cluster at %s", w.node.Facts, want)
		}
	}
}
