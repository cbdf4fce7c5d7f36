package flexnode

import (
	"fmt"
	"slices"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

func kubernetes(version string) api.Desired {
	return api.Desired{Versions: api.Versions{Kubernetes: version}}
}

// failedThrice are failures of the versions that the node's owner wants.
func (w *world) failedThrice() Failures {
	var f Failures
	for i := range FailedNodes {
		f = f.With(w.node.Chosen.Versions, fmt.Sprint("other-", i), w.now)
	}
	return f
}

func TestOffer(t *testing.T) {
	const older, newer = "1.34.4", "1.35.0"
	tests := map[string]struct {
		// what has happened, after the node was put with the older and then with the newer version
		did      func(w *world, first, second int64)
		applied  func(first, second int64) int64
		failures bool
		want     string // which of the two is offered
	}{
		"nothing": {nil, func(first, _ int64) int64 { return first }, false, "second"},
		"it has failed": {func(w *world, _, second int64) { w.node.Failed = second },
			func(first, _ int64) int64 { return first }, false, "first"},
		"it has failed, and had nothing before": {
			func(w *world, _, second int64) { w.node.Failed = second },
			func(int64, int64) int64 { return 0 }, false, "second"},
		"it has failed, and what it runs is not kept": {
			func(w *world, _, second int64) { w.node.Failed = second },
			func(int64, int64) int64 { return 7 }, false, "second"},
		"an older one has failed": {func(w *world, first, _ int64) { w.node.Failed = first },
			func(first, _ int64) int64 { return first }, false, "second"},
		"others have failed": {nil, func(first, _ int64) int64 { return first }, true, "first"},
		"others have failed, and it runs it": {nil,
			func(_, second int64) int64 { return second }, true, "second"},
		"others have failed, and it joins": {nil,
			func(int64, int64) int64 { return 0 }, true, "second"},
		"others have failed, and somebody insists": {
			func(w *world, _, second int64) { w.node.Insisted = second },
			func(first, _ int64) int64 { return first }, true, "second"},
		"it was held back, and may have it now": {
			func(w *world, first, _ int64) { w.node.Assigned = first },
			func(first, _ int64) int64 { return first }, false, "second"},
		"it was held back, and is": {
			func(w *world, first, _ int64) { w.node.Assigned = first },
			func(first, _ int64) int64 { return first }, true, "first"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put(kubernetes(older))
			first := w.node.Revision
			w.put(kubernetes(newer))
			second := w.node.Revision
			if test.did != nil {
				test.did(w, first, second)
			}
			s := Standing{Node: *w.node, History: w.history, Applied: test.applied(first, second)}
			if test.failures {
				s.Failures = w.failedThrice()
			}
			got := must(s.Offer())
			want := map[string]int64{"first": first, "second": second}[test.want]
			if got.Assigned != want || got.Revision != second {
				t.Errorf("%d is offered, of %d and %d", got.Assigned, first, second)
			}
			if again := must(Standing{got, s.History, s.Applied, s.Failures, ""}.Offer()); again.Assigned !=
				got.Assigned {
				t.Errorf("then %d", again.Assigned)
			}
		})
	}
}

// A report of failure has the node go back, and tells the versions if they were what changed. What
// its owner changes is offered, whatever failed before; so is what the node runs after all.
func TestReportOfFailure(t *testing.T) {
	report := func(applied, failed int64) api.Report {
		r := api.Report{AppliedConfigVersion: fmt.Sprint(applied), Config: &api.Applied{}}
		if failed != 0 {
			r.Config.Failed = &api.FailedConfig{Version: fmt.Sprint(failed)}
		}
		return r
	}
	w := newWorld(t)
	w.put(kubernetes("1.34.4"))
	first := w.node.Revision
	w.put(kubernetes("1.35.0"))
	second := w.node.Revision
	n, failed, err := Standing{Node: *w.node, History: w.history}.Report(report(first, second))
	if err != nil || n.Assigned != first || n.Failed != second || failed == nil ||
		failed.Kubernetes != "1.35.0" {
		t.Fatalf("%+v, %v, %v", n, failed, err)
	}
	byHand := report(first, second)
	byHand.Config.Failed.Reason = api.RolledBack
	if n, failed, err := (Standing{Node: *w.node, History: w.history}).Report(byHand); err != nil ||
		n.Assigned != first || failed != nil {
		t.Errorf("rolled back by hand: %+v, %v, %v", n, failed, err)
	}
	w.keep(n, nil)
	// The same report again is no news.
	if n, failed, _ := (Standing{Node: n, History: w.history}).Report(report(first, second)); failed !=
		nil || n.Assigned != first {
		t.Errorf("again: %+v, %v", n, failed)
	}
	// New facts are not its owner's change: both are rendered again, and it is held.
	f := someFacts()
	f.ServerURL = "https://moved.example:6443"
	w.reach(f, "1.35.4")
	offered := must(w.history.Find(w.node.Assigned))
	n, r := RefreshOffered(*w.node, offered, w.parent, w.now, "v1")
	w.history = w.history.With(*r, n.Assigned)
	w.node = &n
	w.refresh()
	if n := w.node; n.Assigned != r.Version || n.Assigned <= second || n.Revision <= n.Assigned ||
		n.Failed != n.Revision || r.Facts != w.parent.factsID() || w.last().Facts != r.Facts {
		t.Errorf("after new facts: %+v", n)
	}
	if c := (Evidence{Node: *w.node}).upToDate(); c.Reason != "Failed" {
		t.Errorf("condition %+v", c)
	}
	// It is known to run it now: it is offered.
	desired := w.node.Revision
	standing := Standing{Node: *w.node, History: w.history}
	if n, _, _ := standing.Report(report(desired, 0)); n.Assigned !=
		desired || n.Failed != 0 {
		t.Errorf("it runs it: %+v", n)
	}
	// A change of its owner is offered, above all that was offered before.
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 50}})
	if n := w.node; n.Assigned != n.Revision || n.Failed != 0 || n.Revision <= desired {
		t.Errorf("after a change: %+v", n)
	}
	// A failure of other settings says nothing of versions.
	third := w.node.Revision
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 51}})
	n, failed, _ = Standing{Node: *w.node, History: w.history}.Report(report(third, w.node.Revision))
	if n.Assigned != third || failed != nil {
		t.Errorf("other settings: %+v, %v", n, failed)
	}
}

// A PUT of versions that others have failed is not offered, nor one that changes something else
// then; to roll the node back to it says that somebody wants it for this node.
func TestPutOfFailedVersions(t *testing.T) {
	w := newWorld(t)
	w.put(kubernetes("1.35.0"))
	w.parent.Cluster.Failures = w.failedThrice()
	w.remove()
	w.put(kubernetes("1.35.0"))
	if n := w.node; n.Assigned != n.Revision {
		t.Error("a node that joins waits for nothing")
	}
	w.put(kubernetes("1.34.4"))
	first := w.node.Revision
	if w.node.Assigned != first {
		t.Error("what nobody has failed is not offered")
	}
	w.put(kubernetes("1.35.0"))
	if w.node.Assigned != first || w.node.Revision == first {
		t.Errorf("held: %+v", w.node)
	}
	if _, err := w.rollBack(w.node.Revision); err != nil {
		t.Fatal(err)
	}
	if n := w.node; n.Assigned != n.Revision || n.Insisted != n.Revision {
		t.Errorf("insisted: %+v", n)
	}
	s := Standing{Node: *w.node, History: w.history, Applied: first,
		Failures: w.parent.Cluster.Failures}
	if n := must(s.Offer()); n.Assigned != n.Revision {
		t.Errorf("it does not remain: %+v", n)
	}
}

// A node that goes back is who it was again.
func TestGoingBackKeepsTheIdentity(t *testing.T) {
	w := newWorld(t)
	d := typical()
	w.put(d)
	first := *w.node
	d.AzureAuth.ServicePrincipal.ClientID = clientB
	w.put(d)
	w.node.Former = "" // the new one was seen
	w.node.Failed = w.node.Revision
	n := must(Standing{
		Node: *w.node, History: w.history, Applied: first.Revision, Tenant: tenant,
	}.Offer())
	if n.Assigned != first.Revision || !slices.Contains(n.Former.All(), first.Identity) {
		t.Errorf("assigned %d, former %q", n.Assigned, n.Former)
	}
}

func TestFailures(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	v := func(k string) api.Versions { return api.Versions{Kubernetes: k, Runc: "1"} }
	var f Failures
	for _, uid := range []string{"a", "a", "b", "a"} {
		f = f.With(v("1"), uid, at)
	}
	if f.Hold(v("1")) {
		t.Error("two nodes are enough")
	}
	f = f.With(v("2"), "a", at).With(v("1"), "c", at)
	if !f.Hold(v("1")) || f.Hold(v("2")) || f.Hold(api.Versions{Kubernetes: "1", Runc: "2"}) {
		t.Errorf("%+v", f)
	}
	if same := f.With(v("1"), "d", at); len(same[0].Nodes) != FailedNodes {
		t.Errorf("more than enough: %+v", same)
	}
	late := at.Add(FailedWithin + time.Second)
	g := f.With(v("2"), "b", late).With(v("2"), "c", late)
	if g.Hold(v("2")) || !g.With(v("2"), "d", late).Hold(v("2")) || !g.Hold(v("1")) {
		t.Errorf("a week later: %+v", g)
	}
	for i := range 3 * maxFailures {
		f = f.With(v(fmt.Sprint("x", i)), "a", at)
	}
	if len(f) != maxFailures || !f.Hold(v("1")) {
		t.Errorf("%d are kept: %+v", len(f), f)
	}
	before := slices.Clone(f)
	var found bool
	g, found = f.Allow(v("1"), "ops")
	if !found || g.Hold(v("1")) || !f.Hold(v("1")) || len(before) != len(f) {
		t.Errorf("allowed: %+v", g)
	}
	if _, found := f.Allow(v("unheard-of"), "ops"); found {
		t.Error("what nobody has failed is allowed")
	}
	if g, found := f.Allow(api.Versions{}, "ops"); !found || g.Hold(v("1")) {
		t.Error("any are not all")
	}
}
