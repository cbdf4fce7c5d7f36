package front

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rollout"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// begins asks whether a node may begin with a revision, as the node itself.
func (w *world) begins(name, version string) api.ChangeBegun {
	w.t.Helper()
	status := w.do("POST", nodeURL(name, "/beginChange"), `{"configVersion":"`+version+`"}`,
		uidHeader+": "+w.storedNode(name).UID)
	text := readAll(w.t, status.Body)
	if status.StatusCode != 200 || status.Header.Get("Cache-Control") != "no-store" {
		w.t.Fatalf("%d %s: %s", status.StatusCode, status.Header, text)
	}
	return decoded[api.ChangeBegun](w.t, text)
}

// edit changes the row of a node.
func (w *world) edit(name string, with func(n *flexnode.Node)) {
	w.t.Helper()
	edit(w, w.api.Store.Nodes, clusterKey+"/"+name, with)
}

// TestBeginChange holds the answer to an agent that asks, for one node that was admitted to an
// upgrade.
func TestBeginChange(t *testing.T) {
	t.Parallel()
	const usual = 15*60 + 5*60 + 5*60
	for name, tt := range map[string]struct {
		// before is done before the agent asks for the desired revision, unless it names another.
		before func(w *world) (version string)
		hold   string
		asks   bool // the node waits for a slot then
	}{
		"it has a slot": {},
		"it asks again": {before: func(w *world) string {
			w.begins("n", w.desires("n"))
			w.clock.Pass(20 * time.Minute)
			return ""
		}},
		"it has had its turn": {before: func(w *world) string {
			w.begins("n", w.desires("n"))
			w.clock.Pass(31 * time.Minute)
			return ""
		}, hold: flexnode.HoldNoSlot, asks: true},
		"its slot has ended": {before: func(w *world) string {
			w.clock.Pass(31 * time.Minute)
			w.admit()
			return ""
		}, hold: flexnode.HoldNoSlot, asks: true},
		"no slot yet": {before: func(w *world) string {
			w.edit("n", func(n *flexnode.Node) { n.Attempt = nil })
			return ""
		}, hold: flexnode.HoldNoSlot, asks: true},
		"another revision is desired": {before: func(w *world) string {
			was := w.desires("n")
			w.upgrading("n", "1.35.1")
			return was
		}, hold: flexnode.HoldSuperseded},
		"another one is on offer": {before: func(w *world) string {
			w.upgrading("n", "1.35.1")
			return ""
		}, hold: flexnode.HoldSuperseded},
		"it has failed it": {before: func(w *world) string {
			w.edit("n", func(n *flexnode.Node) { n.Failed = n.Revision })
			return ""
		}, hold: flexnode.HoldRefused},
		"the store was restored": {before: func(w *world) string {
			w.report("n", fmt.Sprint(w.storedNode("n").Revision+5), "")
			return ""
		}, hold: flexnode.HoldRestored},
		"it has failed too much": {before: func(w *world) string {
			w.edit("n", func(n *flexnode.Node) {
				n.Attempt, n.FailedChanges = nil, []string{"a", "b", "c"}
			})
			return ""
		}, hold: flexnode.HoldLeftOut},
		"paused": {before: func(w *world) string {
			w.policy(api.RolloutPolicy{Paused: true})
			return ""
		}, hold: flexnode.HeldPaused, asks: true},
		"its node is paused": {before: func(w *world) string {
			w.edit("n", func(n *flexnode.Node) { n.Desired.UpgradePolicy.Paused = true })
			return ""
		}, hold: flexnode.HoldNodePaused, asks: true},
		"the canaries have failed": {before: func(w *world) string {
			w.holds(flexnode.HeldCanary)
			return ""
		}, hold: flexnode.HeldCanary, asks: true},
		"too many have failed": {before: func(w *world) string {
			w.holds(flexnode.HeldFailed)
			return ""
		}, hold: flexnode.HeldFailed, asks: true},
		"too many are unknown": {before: func(w *world) string {
			w.holds(flexnode.HeldUnknown)
			return ""
		}, hold: flexnode.HeldUnknown, asks: true},
		"a person insists": {before: func(w *world) string {
			w.holds(flexnode.HeldCanary)
			w.edit("n", func(n *flexnode.Node) { n.Insisted = n.Revision })
			return ""
		}},
		"it needs no slot": {before: func(w *world) string {
			w.edit("n", func(n *flexnode.Node) { n.Attempt = nil })
			w.report("n", w.desires("n"), "")
			w.policy(api.RolloutPolicy{Paused: true})
			return ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.register("")
			w.report("n", w.upgrading("n", "1.34.4"), "")
			w.caughtUp()
			w.upgrading("n", "1.35.0")
			w.admit()
			version := ""
			if tt.before != nil {
				version = tt.before(w)
			}
			if version == "" {
				version = w.desires("n")
			}
			got := w.begins("n", version)
			n := w.storedNode("n")
			if got.Hold != tt.hold || (tt.hold == "") != (got.GrantedSeconds == usual) ||
				(tt.hold != "") != (got.Reason != "" && got.RetryAfter > 0) ||
				(n.Asks == n.Revision) != tt.asks {
				t.Errorf("%+v, asks %d", got, n.Asks)
			}
			if again := w.begins("n", version); again.Hold != got.Hold {
				t.Errorf("asked again: %+v", again)
			}
			if n.Attempt != nil && n.Attempt.Outcome == "" && tt.hold == "" &&
				!n.Attempt.Until.Equal(w.clock.Now().Add(usual*time.Second)) {
				t.Errorf("granted until %s", n.Attempt.Until)
			}
		})
	}
}

// policy sets the rollout policy of the cluster.
func (w *world) policy(p api.RolloutPolicy) {
	w.t.Helper()
	edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
		c.Properties.RolloutPolicy = &p
	})
}

// holds has the change of the node n be held.
func (w *world) holds(why string) {
	w.t.Helper()
	change := flexnode.Change{ID: w.storedNode("n").Attempt.Change}
	edit(w, w.api.Store.Rollouts, clusterKey, func(r *flexnode.Rollout) {
		r.Changes = []flexnode.State{{Change: change, Hold: why}}
	})
}

// The time that is granted is that of the configuration which the node is about to apply.
func TestBeginChangeLasts(t *testing.T) {
	w := newEdge(t)
	w.report("n", w.upgrading("n", "1.34.4"), "")
	w.caughtUp()
	w.clock.Pass(time.Second)
	body := strings.Replace(withPrincipal, `"maxPods":50`, `"maxPods":60`, 1)
	w.must(200, "PUT", nodeURL("n"), strings.Replace(body, `"properties":{`,
		`"properties":{"upgradePolicy":{"deadline":"PT30M","readyTimeout":"PT7M"},`, 1))
	w.admit()
	if got := w.begins("n", w.desires("n")); got.GrantedSeconds != 30*60+7*60+5*60 {
		t.Errorf("%+v", got)
	}
}

// Only the node itself, and a caller with the role, may ask, and for a version alone.
func TestBeginChangeIsRefused(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	w.caughtUp()
	const first = `{"configVersion":"1"}`
	w.must(200, "POST", nodeURL("n", "/beginChange"), first, i.app(t, w, clientA))
	w.must(403, "POST", nodeURL("n", "/beginChange"), first, i.app(t, w, clientB))
	if !strings.Contains(w.audit.String(), "beginChange/action") {
		t.Error("it is not in the audit log")
	}
	w = newWorld(t)
	w.register("")
	w.must(201, "PUT", nodeURL("n"), withPrincipal)
	for _, body := range []string{`{}`, `{"configVersion":"x"}`, `{"configVersion":"-1"}`, `[]`} {
		w.must(400, "POST", nodeURL("n", "/beginChange"), body)
	}
	w.must(404, "POST", nodeURL("other", "/beginChange"), `{"configVersion":"1"}`)
	w.must(404, "POST", nodeURL("n", "/beginChange"), `{"configVersion":"1"}`,
		uidHeader+": 0d7e0f2c-1111-2222-3333-444455556666")
	w.must(200, "POST", nodeURL("n", "/beginChange"), `{"configVersion":"`+w.desires("n")+
		`","another":"member"}`)
}

// The poll of a node that has asked in vain ends early once it may begin. Other writes of its row
// do not end a poll.
func TestBeginChangeWakesThePoll(t *testing.T) {
	warm := newWorld(t) // to load everything outside of the bubble of time
	warm.register("")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Waiters = NewWaiters(25*time.Second, 10)
		w.index.Subscribe(w.api.Waiters.Wake)
		w.register("")
		w.report("n", w.upgrading("n", "1.34.4"), "")
		w.caughtUp()
		w.upgrading("n", "1.35.0")
		w.admit()
		w.edit("n", func(n *flexnode.Node) { n.Attempt = nil })
		if got := w.begins("n", w.desires("n")); got.Hold != flexnode.HoldNoSlot {
			t.Fatalf("%+v", got)
		}
		w.caughtUp()
		a := w.poll(t, "Prefer: wait=25", "If-None-Match: "+w.storedNode("n").ETag(),
			uidHeader+": "+w.storedNode("n").UID)
		time.Sleep(5 * time.Second)
		w.edit("n", func(n *flexnode.Node) { n.Used = !n.Used })
		a.waits()
		time.Sleep(5 * time.Second)
		w.admit()
		a.is(304, 10*time.Second, "wait=25")
		if got := w.begins("n", w.desires("n")); got.GrantedSeconds == 0 {
			t.Errorf("%+v", got)
		}
	})
}

// staleIndex has one node as it was.
type staleIndex struct {
	rollout.Index
	was store.Row[flexnode.Node]
}

func (x staleIndex) Nodes(
	prefix, after string, limit int,
) ([]store.Row[flexnode.Node], bool, error) {
	rows, more, err := x.Index.Nodes(prefix, after, limit)
	for i := range rows {
		if rows[i].Key == x.was.Key {
			rows[i] = x.was
		}
	}
	return rows, more, err
}

// An agent that begins while the owner of its cluster ends its slot keeps it, and no other node
// gets it: the owner has not seen yet that it has begun.
func TestBeginChangeAtTheDeadline(t *testing.T) {
	w := newEdge(t)
	for _, name := range []string{"a", "n"} {
		w.report(name, w.upgrading(name, "1.34.4"), "")
	}
	w.caughtUp()
	for _, name := range []string{"a", "n"} {
		w.upgrading(name, "1.35.0")
	}
	w.admit()
	w.clock.Pass(29 * time.Minute)
	was := must(w.index.Node(clusterKey + "/a"))
	if got := w.begins("a", w.desires("a")); got.GrantedSeconds == 0 {
		t.Fatalf("%+v", got)
	}
	w.caughtUp()
	w.clock.Pass(2 * time.Minute)
	r := w.rollout()
	r.Index = staleIndex{r.Index, was}
	if _, err := r.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.storedNode("n"); n.Attempt != nil || n.Assigned == n.Revision {
		t.Errorf("another node has got the slot: %+v", n.Attempt)
	}
	if n := w.storedNode("a"); n.Attempt.Outcome != "" || n.Attempt.Until.IsZero() {
		t.Errorf("the node has lost its slot: %+v", n.Attempt)
	}
}
