package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// world is a cluster with nodes that run revision 1 and want another.
type world struct {
	t      *testing.T
	memory *storetest.Memory
	s      *store.Store
	index  *store.Index
	r      *Rollout
	now    time.Time
}

const cluster = "s/g/c"

func key(i int) string { return fmt.Sprintf("%s/n%d", cluster, i) }

func revision(version int64, pods int) flexnode.Revision {
	own := fmt.Appendf(nil, `{"node":{"maxPods":%d}}`, pods)
	return flexnode.Revision{Version: version, Own: json.RawMessage(own), Why: "put"}
}

func newWorld(t *testing.T, nodes int) *world {
	memory := storetest.NewMemory()
	s := store.New(memory)
	w := &world{t: t, memory: memory, s: s, index: store.NewIndex(s), now: time.Unix(1_800_000_000, 0)}
	w.register()
	for i := range nodes {
		w.write(func(v *store.View) error {
			h := flexnode.History{}.With(revision(1, 50)).With(revision(2, 60))
			var status flexnode.Status
			status.Report.AppliedConfigVersion = "1"
			n := flexnode.Node{UID: key(i), Revision: 2, Assigned: 1}
			n.Desired.ContinuousMonitoring = true
			return errors.Join(s.History.Set(v, key(i), h), s.Status.Set(v, key(i), status),
				s.Nodes.Set(v, key(i), n))
		})
	}
	w.r = &Rollout{
		Store: s, Index: w.index, Cluster: cluster, Fence: store.Condition{Key: "/none/other"},
		Heard: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler),
		Ready: func(_ string, stored *api.Condition) *api.Condition { return stored },
		Now:   func() time.Time { return w.now },
	}
	return w
}

func (w *world) write(decide func(v *store.View) error) {
	must(w.s.Update(w.t.Context(), "test", nil, decide))
}

// register makes the registration.
func (w *world) register() {
	w.write(func(v *store.View) error {
		c := flexnode.Cluster{}
		c.Properties.Reachable = true
		return w.s.Clusters.Set(v, cluster, c)
	})
}

// step does a round a minute after the last one.
func (w *world) step() {
	must(0, w.index.Load(w.t.Context()))
	w.now = w.now.Add(time.Minute)
	must(w.r.Step(w.t.Context()))
}

// set writes the first node.
func (w *world) set(n flexnode.Node) {
	w.write(func(v *store.View) error { return w.s.Nodes.Set(v, key(0), n) })
}

// node returns the first node.
func (w *world) node() flexnode.Node { return must(w.s.Nodes.Get(w.t.Context(), key(0))).Value }

// admitted reports whether the first node is offered what it wants.
func (w *world) admitted() bool { return w.node().Assigned == w.node().Revision }

// The data of a change are kept once for all nodes that wait for it, and only while they do.
func TestChangesAreShared(t *testing.T) {
	const nodes = 3
	w := newWorld(t, nodes)
	w.step() // which has the index wait for its own write
	w.step()
	r := w.r
	first := r.changes[key(0)].change.Settings
	if len(r.changes) != nodes || len(first) != 1 {
		t.Fatalf("%d nodes, %v", len(r.changes), first)
	}
	for i := range nodes {
		if own := r.changes[key(i)].change.Settings; &own[0] != &first[0] {
			t.Errorf("%s has a copy: %v", key(i), own)
		}
	}
	for i := range nodes {
		w.write(func(v *store.View) error { w.s.Nodes.Delete(v, key(i)); return nil })
	}
	r.settled = false
	w.step()
	if len(r.changes)+len(r.shared) > 0 {
		t.Errorf("%v and %v are left", r.changes, r.shared)
	}
}

// setBack returns a time whose wall clock was set back by an hour, and whose monotonic one was not.
func setBack(t time.Time) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= 3600 << 30
	return t
}

// A rollout does not wait until a clock that was set back has caught up.
func TestClockIsSetBack(t *testing.T) {
	w := newWorld(t, 1)
	w.step()
	last := time.Now()
	w.r.notBefore, w.r.Now = last, func() time.Time { return setBack(time.Now()) }
	if next := must(w.r.Step(t.Context())); next == last {
		t.Errorf("it waits until %s", next)
	}
}

// A registration that is made again while its cluster has the same owner has a rollout, also of a
// change that needs no slot.
func TestRegisteredAgain(t *testing.T) {
	w := newWorld(t, 1)
	w.write(func(v *store.View) error {
		return w.s.History.Set(v, key(0), flexnode.History{}.With(revision(1, 50)).With(revision(2, 50)))
	})
	w.step()
	w.write(func(v *store.View) error {
		w.s.Clusters.Delete(v, cluster)
		w.s.Rollouts.Delete(v, cluster)
		return nil
	})
	w.step()
	w.register()
	for range 3 {
		w.step()
	}
	if !w.admitted() {
		t.Error("its node is not admitted")
	}
}

// A node whose history cannot be read keeps what it is offered until it can.
func TestUnreadableHistory(t *testing.T) {
	w := newWorld(t, 1)
	w.r.Heard = func(string) bool { return true }
	w.step()
	w.step()
	if !w.admitted() {
		t.Fatal("its node is not admitted")
	}
	w.write(func(v *store.View) error {
		n := w.s.Nodes.Row(v, key(0)).Value
		n.Revision, n.Attempt.Until = 3, w.now.Add(time.Hour)
		h := w.s.History.Row(v, key(0)).Value.With(revision(3, 70), 1, 2)
		return errors.Join(w.s.Nodes.Put(v, key(0), n), w.s.History.Put(v, key(0), h))
	})
	w.memory.Before(func(c storetest.Call) error {
		if slices.Contains(c.Keys, w.s.History.Key(key(0))) {
			return errors.New("no leader")
		}
		return nil
	})
	w.step()
	states := must(w.s.Rollouts.Get(t.Context(), cluster)).Value.Changes
	if w.admitted() || slices.ContainsFunc(states, func(s flexnode.State) bool {
		return len(s.Failed) > 0
	}) {
		t.Errorf("admitted %t, %+v", w.admitted(), states)
	}
	w.memory.Before(nil)
	w.step()
	w.step()
	if !w.admitted() {
		t.Error("it is not admitted later")
	}
}

// A late write of an earlier round, whose outcome was unknown, admits no node beside those of later
// rounds. The next round waits until the index has a written row, also one that had changed before.
func TestLateWritesAdmitNoNode(t *testing.T) {
	w := newWorld(t, 1)
	r, first := w.r, flexnode.Node{UID: "u", Revision: 2, Assigned: 1}
	must(0, w.index.Load(t.Context()))
	newer := first
	newer.Used = true
	w.set(newer) // the index has an older row
	c := flexnode.Candidate{Key: key(0), UID: "u", Desired: 2, Assigned: 1, Applied: 1}
	seen := map[string]flexnode.Candidate{c.Key: c}
	moves := map[string]flexnode.Candidate{c.Key: {Key: c.Key, Assigned: 2}}
	for when, want := range map[string]int64{"never": 2, "before": 1, "at the commit": 1} {
		late := when != "never"
		r.round = must(r.begin(t.Context()))
		next := sync.OnceFunc(func() { must(r.begin(t.Context())) }) // the next round
		if when == "before" {
			next()
		}
		w.memory.Before(func(c storetest.Call) error {
			if when == "at the commit" && c.Op == "commit" {
				w.memory.Before(nil)
				next()
			}
			return nil
		})
		r.need = 1
		kept := must(r.write(t.Context(), []string{c.Key}, seen, moves))
		if is := w.node().Assigned; kept != late || is != want {
			t.Errorf("another round %s: kept %t, assigned %d", when, kept, is)
		}
		if waits := must(r.isBehind(t.Context())); waits == late {
			t.Errorf("another round %s: the next round waits for a write: %t", when, waits)
		}
		w.set(first)
	}
}

// An owner who changes a node in every round does not keep its overdue slot by that, and does not
// keep the cluster from giving slots. A new attempt of the node does.
func TestOwnerKeepsNoSlot(t *testing.T) {
	at := flexnode.Attempt{Change: "x", Revision: 2, At: time.Unix(1_800_000_000, 0).UTC()}
	over, later := at, at
	over.Outcome, later.Revision = flexnode.Unknown, 3
	for name, tt := range map[string]struct {
		stored, want flexnode.Attempt
		kept         bool
	}{
		"another revision": {at, over, false}, "another attempt": {later, later, true},
	} {
		w := newWorld(t, 1)
		w.set(flexnode.Node{UID: "u", Revision: 3, Assigned: 2, Attempt: &tt.stored})
		w.r.round = must(w.r.begin(t.Context()))
		c := flexnode.Candidate{Key: key(0), UID: "u", Desired: 2, Assigned: 2, Applied: 1, Attempt: &at}
		m := c
		m.Assigned, m.Attempt = 1, &over
		kept := must(w.r.write(t.Context(), []string{c.Key}, map[string]flexnode.Candidate{c.Key: c},
			map[string]flexnode.Candidate{c.Key: m}))
		n := w.node()
		if kept != tt.kept || *n.Attempt != tt.want || n.Assigned != 2 || n.Revision != 3 {
			t.Errorf("%s: kept %t, %+v", name, kept, n)
		}
	}
}

// A replica that has lost the cluster to another admits no node, and writes nothing else.
func TestFencedRollout(t *testing.T) {
	for _, begins := range []bool{false, true} {
		w := newWorld(t, 1)
		w.r.Heard = func(string) bool { return true }
		w.step()
		before := must(w.s.Rollouts.Get(t.Context(), cluster)).Revision
		must(0, w.index.Load(t.Context()))
		w.r.Fence.Revision = 7
		if begins {
			w.r.need = 0
		}
		_, err := w.r.Step(t.Context())
		after := must(w.s.Rollouts.Get(t.Context(), cluster)).Revision
		if !errors.Is(err, store.ErrFenced) || w.admitted() || after != before {
			t.Errorf("begins %t: %v, admitted %t, states of %d and %d", begins, err, w.admitted(), before,
				after)
		}
	}
}

// A Node is judged by its present state: the store may be behind.
func TestStoredReadyIsLate(t *testing.T) {
	w := newWorld(t, 1)
	ready := &api.Condition{Status: "True", LastTransitionTime: w.now.Add(-time.Hour)}
	w.write(func(v *store.View) error {
		return w.s.Status.Set(v, key(0), flexnode.Status{Ready: ready})
	})
	w.set(flexnode.Node{UID: "u", Revision: 1, Attempt: &flexnode.Attempt{Revision: 1}})
	must(0, w.index.Load(t.Context()))
	row := must(w.index.Node(key(0)))
	for want, is := range map[string]*api.Condition{
		"": nil, "False": {Status: "False", LastTransitionTime: w.now.Add(-2 * notReadyFor)},
		"Unknown": {Status: "False", LastTransitionTime: w.now}, "True": {Status: "True"},
	} {
		w.r.Ready = func(string, *api.Condition) *api.Condition { return is }
		if c := must(w.r.candidate(t.Context(), row, w.now)); c.Ready != want {
			t.Errorf("%q: %q", want, c.Ready)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
