package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// upgradedNodes makes nodes that were to run an older version of runc and are to run a newer one:
// "runs" runs the newer one, "joins" runs nothing yet, the others run the older one. It returns the
// revisions that those run.
func (w *world) upgradedNodes(names ...string) map[string]int64 {
	w.t.Helper()
	first := map[string]int64{}
	for _, name := range append([]string{"runs", "joins"}, names...) {
		w.put(factoryID, name, api.Desired{Versions: api.Versions{Runc: "1.3.3"}})
		first[name] = w.node(factory + "/" + name).Revision
		w.put(factoryID, name, api.Desired{Versions: api.Versions{Runc: "1.3.4"}})
		applied := first[name]
		switch name {
		case "runs":
			applied = w.node(factory + "/runs").Revision
		case "joins":
			continue
		}
		w.change(func(v *store.View) error {
			return w.store.Status.Put(v, factory+"/"+name, flexnode.Status{
				Report: api.Report{AppliedConfigVersion: fmt.Sprint(applied)}})
		})
	}
	return first
}

// failVersions has the cluster know that enough nodes have failed the versions of a node, or, by
// who allows that, that they are allowed.
func (w *world) failVersions(name, allowedBy string) {
	w.t.Helper()
	w.change(func(v *store.View) error {
		row, err := w.store.Clusters.In(v, factory)
		if err != nil {
			return err
		}
		for i := range flexnode.FailedNodes {
			row.Value.Failures = row.Value.Failures.With(
				w.node(factory+"/"+name).Chosen.Versions, fmt.Sprint("uid-", i), time.Now())
		}
		if allowedBy != "" {
			row.Value.Failures, _ = row.Value.Failures.Allow(api.Versions{}, allowedBy)
		}
		return w.store.Clusters.Put(v, factory, row.Value)
	})
	pass(time.Second)
}

// Nodes that have not taken versions yet which others have failed are offered what they run, until
// they are allowed. While they are held new facts reach them.
func TestFailedVersionsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := factoryWorld(t)
		var names []string
		for i := range store.MaxWrites / 2 { // more than one transaction, by what is read
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		first := w.upgradedNodes(names...)
		w.failVersions("n000", "")
		for _, name := range names {
			if n := w.node(factory + "/" + name); n.Assigned != first[name] ||
				n.Revision == first[name] {
				t.Fatalf("%s is offered %d, which is not what it runs: %d", name, n.Assigned,
					first[name])
			}
		}
		for _, name := range []string{"runs", "joins"} {
			if n := w.node(factory + "/" + name); n.Assigned != n.Revision {
				t.Errorf("%s is held back", name)
			}
		}
		w.moveAPIServer("https://moved.example/")
		pass(10 * time.Second)
		facts := w.cluster(factory).Facts
		held := w.node(factory + "/n000")
		history := must(w.store.History.Get(context.Background(), factory+"/n000")).Value
		offered := must(history.Find(held.Assigned))
		if held.Assigned == held.Revision || offered.Facts != facts ||
			offered.Repeats != first["n000"] || held.Assigned > held.Revision {
			t.Errorf("with new facts: %+v, offered %+v", held, offered)
		}
		w.failVersions("n000", "ops")
		for _, name := range names {
			if n := w.node(factory + "/" + name); n.Assigned != n.Revision {
				t.Fatalf("%s is held back although it is allowed: %+v", name, n)
			}
		}
	})
}

// What another replica has left undone its successor does.
func TestHoldingBackIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := factoryWorld(t)
		first := w.upgradedNodes("n")
		delete(w.owned, factory)
		w.manager.assign(context.Background(), w.owned)
		w.failVersions("n", "")
		if n := w.node(factory + "/n"); n.Assigned != n.Revision {
			t.Fatal("somebody works on the cluster")
		}
		w.own(factory)
		pass(time.Second)
		if n := w.node(factory + "/n"); n.Assigned != first["n"] {
			t.Errorf("nobody has gone on: %+v", n)
		}
	})
}

// Held nodes are looked at again when what is held changes, and not with every change of the
// cluster's row.
func TestHeldNodesAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := factoryWorld(t)
		first := w.upgradedNodes("held")
		w.failVersions("held", "")
		if n := w.node(factory + "/held"); n.Assigned != first["held"] {
			t.Fatalf("it is not held: %+v", n)
		}
		var read atomic.Int32
		w.memory.Before(func(c storetest.Call) error {
			if slices.Contains(c.Keys, w.store.History.Key(factory+"/held")) {
				read.Add(1)
			}
			return nil
		})
		for i := range 5 {
			w.change(func(v *store.View) error {
				row, err := w.store.Clusters.In(v, factory)
				if err != nil {
					return err
				}
				c := row.Value
				c.Tags = map[string]string{"n": fmt.Sprint(i)}
				// One node's failure holds nothing.
				c.Failures = c.Failures.With(api.Versions{Runc: fmt.Sprint("1.9.", i)}, "a", time.Now())
				return w.store.Clusters.Put(v, factory, c)
			})
			pass(time.Second)
		}
		if n := read.Load(); n != 0 {
			t.Errorf("read %d times", n)
		}
		w.failVersions("held", "ops")
		if n := w.node(factory + "/held"); n.Assigned != n.Revision || read.Load() == 0 {
			t.Errorf("allowed, and still held: %+v", n)
		}
	})
}

// A node that was held between two decisions, by what was held for a moment, is offered its revision
// again: what is held is the same as at the first one, and is not what the node was held by.
func TestHeldForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := factoryWorld(t)
		first := w.upgradedNodes("held", "other")
		w.failVersions("held", "ops") // nothing is held, which is decided
		w.change(func(v *store.View) error {
			row, err := w.store.Nodes.In(v, factory+"/other")
			if err != nil {
				return err
			}
			row.Value.Assigned = first["other"]
			return w.store.Nodes.Put(v, factory+"/other", row.Value)
		})
		hold := func(allowedBy string) {
			w.change(func(v *store.View) error {
				row, err := w.store.Clusters.In(v, factory)
				if err != nil {
					return err
				}
				row.Value.Failures = slices.Clone(row.Value.Failures)
				row.Value.Failures[0].Allowed = allowedBy
				return w.store.Clusters.Put(v, factory, row.Value)
			})
			synctest.Wait()
		}
		w.memory.Before(func(c storetest.Call) error { // no decision is written meanwhile
			if slices.Contains(c.Keys, w.store.History.Key(factory+"/held")) {
				return errors.New("it does not answer")
			}
			return nil
		})
		hold("")
		hold("ops")
		w.memory.Before(nil)
		pass(time.Minute)
		for _, name := range []string{"held", "other"} {
			if n := w.node(factory + "/" + name); n.Assigned != n.Revision {
				t.Errorf("%s is held: %d of %d", name, n.Assigned, n.Revision)
			}
		}
	})
}

// What was held and then allowed while the index was behind the store, which tells of both at once
// later, holds nobody either.
func TestHeldWhileTheIndexIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := factoryWorld(t)
		first := w.upgradedNodes("held")
		w.change(func(v *store.View) error { // something is decided: nothing is held
			row, err := w.store.Clusters.In(v, factory)
			if err != nil {
				return err
			}
			row.Value.Failures = row.Value.Failures.With(api.Versions{Runc: "1.9.9"}, "a", time.Now())
			return w.store.Clusters.Put(v, factory, row.Value)
		})
		pass(time.Second)
		w.memory.Before(func(c storetest.Call) error {
			if c.Op == "changes" || c.Op == "follow" {
				return errors.New("it does not answer")
			}
			return nil
		})
		w.failVersions("held", "")
		w.change(func(v *store.View) error { // as who writes the node meanwhile does
			row, err := w.store.Nodes.In(v, factory+"/held")
			if err != nil {
				return err
			}
			row.Value.Assigned = first["held"]
			return w.store.Nodes.Put(v, factory+"/held", row.Value)
		})
		w.failVersions("held", "ops")
		w.memory.Before(nil)
		pass(time.Minute)
		if n := w.node(factory + "/held"); n.Assigned != n.Revision {
			t.Errorf("it is held: %d of %d", n.Assigned, n.Revision)
		}
	})
}
