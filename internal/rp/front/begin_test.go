package front

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rollout"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// begins asks, as the node itself, whether a node may begin a revision.
func (w *world) begins(name, version string) api.ChangeBegun {
	w.t.Helper()
	r, text := w.must(200, "POST", nodeURL(name, "/beginChange"), versionOf(version),
		uidHeader+": "+w.storedNode(name).UID)
	equal(w.t, "Cache-Control", r.Header.Get("Cache-Control"), "no-store")
	return decoded[api.ChangeBegun](w.t, text)
}

// versionOf returns the body of a request about a version of the configuration.
func versionOf(version string) string { return `{"configVersion":"` + version + `"}` }

// edit changes the row of a node.
func (w *world) edit(name string, with func(n *flexnode.Node)) {
	w.t.Helper()
	edit(w, w.api.Store.Nodes, clusterKey+"/"+name, with)
}

// TestBeginChange tests the answers to an agent of a node that was admitted to an upgrade.
func TestBeginChange(t *testing.T) {
	t.Parallel()
	const usual = 15*60 + 5*60 + 5*60
	edits := func(with func(*flexnode.Node)) func(*world) {
		return func(w *world) { w.edit("n", with) }
	}
	upgrades := func(w *world) { w.upgrading("n", "1.35.1") }
	for name, tt := range map[string]struct {
		// before is done before the agent asks for the desired revision, or the one before it.
		before func(w *world)
		former bool
		hold   string
		asks   bool // the node waits for a slot then
	}{
		"it has a slot": {before: func(*world) {}},
		"it asks again": {before: func(w *world) {
			w.begins("n", w.desires("n"))
			w.clock.Pass(20 * time.Minute)
		}},
		"it has had its turn": {before: func(w *world) {
			w.begins("n", w.desires("n"))
			w.clock.Pass(31 * time.Minute)
		}, hold: flexnode.HoldNoSlot, asks: true},
		"its slot has ended": {before: func(w *world) {
			w.clock.Pass(31 * time.Minute)
			w.admit()
		}, hold: flexnode.HoldNoSlot, asks: true},
		"no slot yet": {hold: flexnode.HoldNoSlot, asks: true,
			before: edits(func(n *flexnode.Node) { n.Attempt = nil })},
		"another revision is desired": {before: upgrades, former: true, hold: flexnode.HoldSuperseded},
		"another one is on offer":     {before: upgrades, hold: flexnode.HoldSuperseded},
		"it has failed it": {hold: flexnode.HoldRefused,
			before: edits(func(n *flexnode.Node) { n.Failed = n.Revision })},
		"the store was restored": {before: func(w *world) {
			w.report("n", fmt.Sprint(w.storedNode("n").Revision+5), "")
		}, hold: flexnode.HoldRestored},
		"it has failed too much": {hold: flexnode.HoldLeftOut, before: edits(func(n *flexnode.Node) {
			n.Attempt, n.FailedChanges = nil, []string{"a", "b", "c"}
		})},
		"paused": {before: paused, hold: flexnode.HeldPaused, asks: true},
		"its node is paused": {hold: flexnode.HoldNodePaused, asks: true,
			before: edits(func(n *flexnode.Node) { n.Desired.UpgradePolicy.Paused = true })},
		"the canaries have failed": {
			before: holds(flexnode.HeldCanary), hold: flexnode.HeldCanary, asks: true},
		"too many have failed": {
			before: holds(flexnode.HeldFailed), hold: flexnode.HeldFailed, asks: true},
		"too many are unknown": {
			before: holds(flexnode.HeldUnknown), hold: flexnode.HeldUnknown, asks: true},
		"the canaries have failed since its slot has ended": {before: func(w *world) {
			w.clock.Pass(31 * time.Minute)
			w.admit()
			holds(flexnode.HeldCanary)(w)
		}, hold: flexnode.HeldCanary, asks: true},
		"a person insists": {before: func(w *world) {
			holds(flexnode.HeldCanary)(w)
			insists(w)
		}},
		"a person insists after its slot has ended": {before: func(w *world) {
			w.clock.Pass(31 * time.Minute)
			w.admit()
			holds(flexnode.HeldCanary)(w)
			w.begins("n", w.desires("n"))
			w.admit()
			equal(w.t, "why it holds", w.begins("n", w.desires("n")).Hold, flexnode.HeldCanary)
			insists(w)
			w.admit()
		}},
		"it needs no slot": {before: func(w *world) {
			w.edit("n", func(n *flexnode.Node) { n.Attempt = nil })
			w.report("n", w.desires("n"), "")
			paused(w)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEdge(t)
			w.report("n", w.upgrading("n", "1.34.4"), "")
			w.upgrading("n", "1.35.0")
			w.admit()
			version := w.desires("n")
			tt.before(w)
			if !tt.former {
				version = w.desires("n")
			}
			got, n := w.begins("n", version), w.storedNode("n")
			equal(t, "why it holds", got.Hold, tt.hold)
			shows(t, "it is granted, held with a reason, and asks", fmt.Sprint(tt.hold == "", tt.hold != "",
				tt.asks), got.GrantedSeconds == usual, got.Reason != "" && got.RetryAfter > 0,
				n.Asks == n.Revision)
			equal(t, "asked again, why it holds", w.begins("n", version).Hold, got.Hold)
			if n.Attempt != nil && n.Attempt.Outcome == "" && tt.hold == "" &&
				!n.Attempt.Until.Equal(w.clock.Now().Add(usual*time.Second)) {
				t.Errorf("granted until %s", n.Attempt.Until)
			}
		})
	}
}

// paused pauses the rollouts of the cluster.
func paused(w *world) {
	edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
		c.Properties.RolloutPolicy = &flexnode.RolloutPolicy{Paused: true}
	})
}

// holds holds the change of the node n.
func holds(why string) func(*world) {
	return func(w *world) {
		change := flexnode.Change{ID: w.storedNode("n").Attempt.Change}
		edit(w, w.api.Store.Rollouts, clusterKey, func(r *flexnode.Rollout) {
			r.Changes = []flexnode.State{{Change: change, Hold: why, Failed: []string{"another"}}}
		})
	}
}

// insists rolls the node n back to its desired configuration.
func insists(w *world) {
	w.t.Helper()
	version := w.desires("n")
	_, text := w.must(200, "POST", nodeURL("n", "/rollback"), versionOf(version))
	shows(w.t, "the desired version, and the answer's", version+" "+version, w.desires("n"),
		shownNode(w.t, text).Properties.ConfigVersion)
	before := w.revision()
	w.must(200, "POST", nodeURL("n", "/rollback"), versionOf(version))
	equal(w.t, "the revision after another rollback", w.revision(), before)
}

// The granted time is that of the configuration which the node is about to apply.
func TestBeginChangeLasts(t *testing.T) {
	w := newEdge(t)
	w.report("n", w.upgrading("n", "1.34.4"), "")
	w.clock.Pass(time.Second)
	body := strings.Replace(withPrincipal, `"maxPods":50`, `"maxPods":60`, 1)
	w.must(200, "PUT", nodeURL("n"), strings.Replace(body, `"properties":{`,
		`"properties":{"upgradePolicy":{"deadline":"PT30M","readyTimeout":"PT7M"},`, 1))
	w.admit()
	equal(t, "the time that is granted", w.begins("n", w.desires("n")).GrantedSeconds, 30*60+7*60+5*60)
}

// Only the node itself, and a caller with the role, may ask, and only with a version.
func TestBeginChangeIsRefused(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	begin := nodeURL("n", "/beginChange")
	w.must(200, "POST", begin, versionOf("1"), i.app(w, clientA))
	w.must(403, "POST", begin, versionOf("1"), i.app(w, clientB))
	has(t, "the audit log", w.audit.String(), "beginChange/action")
	w.front = w.api.Direct(w.callers())
	for _, body := range []string{`{}`, versionOf("x"), versionOf("-1"), `[]`} {
		w.must(400, "POST", begin, body)
	}
	w.must(404, "POST", nodeURL("other", "/beginChange"), versionOf("1"))
	w.must(404, "POST", begin, versionOf("1"), uidHeader+": 0d7e0f2c-1111-2222-3333-444455556666")
	w.must(200, "POST", begin, `{"configVersion":"`+w.desires("n")+`","another":"member"}`)
}

// The poll of a held node ends once it may begin, and not because of other writes.
func TestBeginChangeWakesThePoll(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.api.Waiters = NewWaiters(25*time.Second, 10)
		w.index.Subscribe(w.api.Waiters.Wake)
		w.report("n", w.upgrading("n", "1.34.4"), "")
		w.upgrading("n", "1.35.0")
		w.admit()
		w.edit("n", func(n *flexnode.Node) { n.Attempt = nil })
		equal(t, "the hold", w.begins("n", w.desires("n")).Hold, flexnode.HoldNoSlot)
		w.caughtUp()
		a := w.poll(t, "Prefer: wait=25", "If-None-Match: "+w.storedNode("n").ETag(),
			uidHeader+": "+w.storedNode("n").UID)
		time.Sleep(5 * time.Second)
		w.edit("n", func(n *flexnode.Node) { n.Used = !n.Used })
		a.waits()
		time.Sleep(5 * time.Second)
		w.admit()
		a.is(304, 10*time.Second, "wait=25")
		w.granted("n")
	})
}

// staleIndex has an old row of one node.
type staleIndex struct {
	rollout.Index
	was store.Row[flexnode.Node]
}

func (x staleIndex) Nodes(prefix, after string) iter.Seq2[store.Row[flexnode.Node], error] {
	return func(yield func(store.Row[flexnode.Node], error) bool) {
		for row, err := range x.Index.Nodes(prefix, after) {
			if row.Key == x.was.Key {
				row = x.was
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// An agent that begins while the cluster's owner ends its slot keeps it; no other node gets it.
func TestBeginChangeAtTheDeadline(t *testing.T) {
	w := newEdge(t)
	for _, name := range []string{"a", "n"} {
		w.report(name, w.upgrading(name, "1.34.4"), "")
		w.upgrading(name, "1.35.0")
	}
	w.admit()
	w.clock.Pass(29 * time.Minute)
	was := must(w.index.Node(clusterKey + "/a"))
	w.granted("a")
	w.caughtUp()
	w.clock.Pass(2 * time.Minute)
	r := w.rollout()
	r.Index = staleIndex{r.Index, was}
	w.round(r)
	n, a := w.storedNode("n"), w.storedNode("a").Attempt
	shows(t, "another node has the slot", "false false", n.Attempt != nil, n.Assigned == n.Revision)
	shows(t, "the node has lost its slot", "false false", a.Outcome != "", a.Until.IsZero())
}

// upgrading puts a node with a version of Kubernetes, and returns its configVersion.
func (w *world) upgrading(name, kubernetes string) string {
	w.t.Helper()
	w.clock.Pass(1e9)
	r := w.do("PUT", nodeURL(name), strings.Replace(withPrincipal, "1.34.4", kubernetes, 1))
	return shownNode(w.t, readAll(r.Body)).Properties.ConfigVersion
}

// granted begins the desired revision of a node.
func (w *world) granted(name string) {
	w.t.Helper()
	equal(w.t, "it may begin", w.begins(name, w.desires(name)).GrantedSeconds > 0, true)
}

// desires returns the version of a node's desired revision.
func (w *world) desires(name string) string {
	return flexnode.ShownVersion(w.storedNode(name).Revision)
}

// offered returns the version that a node is offered.
func (w *world) offered(name string) string {
	return flexnode.ShownVersion(w.storedNode(name).Assigned)
}

func (w *world) report(name, applied, failed string) {
	w.t.Helper()
	body := `{"appliedConfigVersion":"` + applied + `"}`
	if failed != "" {
		body = fmt.Sprintf(`{"config":{"applied":"%s","failed":{"version":"%s","reason":"NotReady"}}}`,
			applied, failed)
	}
	w.settles(204, "POST", nodeURL(name, "/reportStatus"), body)
}

// admit runs a round of the rollout by the cluster's owner.
func (w *world) admit() {
	w.t.Helper()
	w.caughtUp()
	w.round(w.rollout())
	w.caughtUp()
}

// round runs the first round of a rollout, which waits for its own write.
func (w *world) round(r *rollout.Rollout) {
	w.t.Helper()
	must(r.Step(context.Background()))
	w.caughtUp()
	must(r.Step(context.Background()))
}

// rollout returns the rollout of the cluster's owner.
func (w *world) rollout() *rollout.Rollout {
	return &rollout.Rollout{
		Store: w.api.Store, Index: w.index, Cluster: clusterKey, Now: w.clock.Now,
		Fence: store.Condition{Key: "/none/other"}, Log: slog.New(slog.DiscardHandler),
		Heard: func(string) bool { return true },
		Ready: func(_ string, stored *api.Condition) *api.Condition { return stored },
	}
}

// A failed node is offered its running revision, as its ETag shows, and the same again on request.
func TestNodeThatFails(t *testing.T) {
	w := newEdge(t)
	first := w.upgrading("n", "1.34.4")
	w.report("n", first, "")
	second := w.upgrading("n", "1.35.0")
	w.admit()
	r, text := w.must(200, "GET", nodeURL("n"), "")
	offered := r.Header.Get("ETag")
	equal(t, "the version that is admitted", shownNode(t, text).Properties.ConfigVersion, second)
	w.report("n", first, second)
	w.admit()
	told := w.node(200, "GET", nodeURL("n"), "", uidHeader+": "+w.storedNode("n").UID)
	equal(t, "what the agent is offered", told.Properties.ConfigVersion, first)
	r, text = w.must(200, "GET", nodeURL("n"), "", "If-None-Match: "+offered)
	n := shownNode(t, text)
	shows(t, "after the failure", second+" 1.35.0 false", n.Properties.ConfigVersion,
		n.Properties.Versions.Kubernetes, r.Header.Get("ETag") == offered)
	has(t, "after the failure", text, `"reason":"Failed"`)
	w.must(304, "GET", nodeURL("n"), "", "If-None-Match: "+n.ETag)
	w.must(200, "PUT", nodeURL("n"), text) // changes nothing
	equal(t, "after an equal PUT", w.desires("n"), second)
	all := w.revisions()
	shows(t, "the failed revision and the one before", "true true false true true", all[0].Failed,
		all[0].Desired, all[0].Assigned, all[1].Assigned, all[1].Applied)
	again := w.node(200, "POST", nodeURL("n", "/rollback"), versionOf(second)).Properties
	shows(t, "the same again, later", "1.35.0 true", again.Versions.Kubernetes,
		again.ConfigVersion > second)
	// The agent reports the old failure again, which changes nothing.
	w.report("n", first, second)
	w.admit()
	equal(t, "what is offered", w.offered("n"), again.ConfigVersion)
	w.report("n", first, again.ConfigVersion)
	w.admit()
	third := w.upgrading("n", "1.34.9")
	w.admit()
	shows(t, "a change is offered", third+" 0", w.offered("n"), w.storedNode("n").Failed)
}

// A node that is left out takes part again, in later changes too, after a rollback: to what it runs
// or to the desired configuration.
func TestNodeThatIsLeftOut(t *testing.T) {
	for name, desired := range map[string]bool{"to what it runs": false, "to the desired one": true} {
		t.Run(name, func(t *testing.T) {
			w := newEdge(t)
			first := w.upgrading("n", "1.34.4")
			w.report("n", first, "")
			w.edit("n", func(n *flexnode.Node) { n.FailedChanges = []string{"a", "b", "c"} })
			to := map[bool]string{false: first, true: w.upgrading("n", "1.35.0")}[desired]
			w.admit()
			_, text := w.must(200, "GET", nodeURL("n"), "")
			has(t, "the node at first", text, `"reason":"LeftOut"`)
			w.must(200, "POST", nodeURL("n", "/rollback"), versionOf(to))
			w.admit()
			equal(t, "what is offered", w.offered("n"), w.desires("n"))
			w.report("n", first, "")
			w.upgrading("n", "1.34.9")
			w.admit()
			equal(t, "what is offered next", w.offered("n"), w.desires("n"))
		})
	}
}

// A change that its first node has failed is held until more failures are allowed; a joining node
// does not wait. A caller that has read a node may change it, whatever its agent is offered.
func TestChangeThatFails(t *testing.T) {
	w := newEdge(t)
	first := map[string]string{}
	for _, name := range []string{"a", "b"} {
		first[name] = w.upgrading(name, "1.34.4")
		w.report(name, first[name], "")
		equal(t, "the answer to a PUT", w.upgrading(name, "1.35.0"), w.desires(name))
	}
	_, text := w.must(200, "GET", nodeURL("a"), "")
	read := shownNode(t, text)
	w.admit()
	w.must(200, "PUT", nodeURL("a"), text, "If-Match: "+read.ETag)
	w.report("a", first["a"], w.desires("a"))
	w.admit()
	_, text = w.must(200, "POST", summarizeURL, "")
	changes := decoded[api.Summary](t, text).Changes
	shows(t, "the changes", "1 1 CanaryFailed 1 kubernetes.version=1.35.0", len(changes),
		changes[0].Failed, changes[0].Held, changes[0].Waiting, changes[0].Settings[0])
	equal(t, "what b is offered", w.offered("b"), first["b"])
	got := w.upgrading("new", "1.35.0")
	equal(t, "what a node that joins is offered", w.offered("new"), got)
	w.caughtUp()
	equal(t, "held back", w.names(filtered("state eq 'heldBack' and state ne 'failed'")), "b")
	url := cluster + "/allowVersions" + versionQuery
	w.refused(409, "ChangeNotFailed", "POST", url, `{"change":"0123456789ab"}`)
	body := `{"change":"` + changes[0].Change + `"}`
	allowed := reads[api.AllowedVersions](w, 200, "POST", url, body).Changes[0]
	shows(t, "who has allowed it, and whether it ends", "ops@example.com true", allowed.AllowedBy,
		allowed.AllowedUntil != nil)
	w.admit()
	equal(t, "what was allowed", w.offered("b"), w.desires("b"))
}

// A registration with a policy that cannot be read is refused; an equal one changes nothing.
func TestRolloutPolicyIsChecked(t *testing.T) {
	w := beside(t)
	_, text := w.must(400, "PUT", clusterURL,
		registration(`"rolloutPolicy":{"maxUnavailable":"x","soak":"1h"}`))
	has(t, "the refusal", text, "rolloutPolicy.maxUnavailable", "rolloutPolicy.soak")
	good := registration(
		`"rolloutPolicy":{"maxUnavailable":"3","canaries":0,"soak":"PT0S","paused":true}`)
	w.must(201, "PUT", clusterURL, good)
	r, text := w.must(200, "PUT", clusterURL, good)
	p := decoded[api.ManagedCluster](t, text).Properties.RolloutPolicy
	shows(t, "the policy", "0 true", *p.Canaries, p.Paused)
	again, _ := w.must(200, "PUT", clusterURL, good)
	equal(t, "the ETag after an equal PUT", again.Header.Get("ETag"), r.Header.Get("ETag"))
}

// After a restore from a backup, an agent with a later configuration than the store is offered
// nothing until its owner changes the node or requests the desired configuration again.
func TestRestoredStoreOffersNothing(t *testing.T) {
	t.Parallel()
	put := func(change ...string) func(w *world) *http.Response {
		body := strings.NewReplacer(change...).Replace(withPrincipal)
		return func(w *world) *http.Response { return w.do("PUT", nodeURL("n"), body) }
	}
	for name, test := range map[string]struct {
		does func(w *world) *http.Response
		held bool
	}{
		"another version": {does: put("1.34.4", "1.35.0")},
		"the same again":  {does: put()},
		"a pause": {does: put(`"properties":{`, `"properties":{"upgradePolicy":{"paused":true},`),
			held: true},
		"a rollback to the desired configuration": {does: func(w *world) *http.Response {
			return w.do("POST", nodeURL("n", "/rollback"), versionOf(w.desires("n")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEdge(t)
			w.upgrading("n", "1.34.4")
			n := w.storedNode("n")
			later := n
			later.Revision, later.Assigned = n.Revision+5, n.Revision+5
			r, _ := w.must(304, "GET", nodeURL("n"), "", "If-None-Match: "+later.ETag())
			equal(t, "the ETag", r.Header.Get("ETag"), later.ETag())
			w.report("n", flexnode.ShownVersion(later.Revision), "")
			w.admit()
			_, text := w.must(200, "GET", nodeURL("n"), "")
			has(t, "the node", text, `"reason":"Restored"`)
			equal(t, "what it is offered", w.storedNode("n").Assigned, n.Assigned)
			w.clock.Pass(10e9)
			equal(t, "the answer", test.does(w).StatusCode, 200)
			w.admit()
			_, text = w.must(200, "GET", nodeURL("n"), "")
			equal(t, "whether it is held", strings.Contains(text, `"reason":"Restored"`), test.held)
			status := map[bool]int{true: 304, false: 200}[test.held]
			_, text = w.must(status, "GET", nodeURL("n"), "", "If-None-Match: "+later.ETag())
			if !test.held {
				released := w.desires("n")
				shows(t, "what it is offered now", released+" true",
					shownNode(t, text).Properties.ConfigVersion, w.storedNode("n").Revision > later.Revision)
				test.does(w)
				equal(t, "what the same request changes then", w.desires("n"), released)
			}
		})
	}
}
