package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// running creates nodes that run version 1.3.3 of runc, are Ready, follow, and want a version. It
// returns their running revisions.
func (w *world) running(c *fakeCluster, runc string, names ...string) map[string]int64 {
	w.t.Helper()
	first := map[string]int64{}
	for _, name := range names {
		w.put(factoryID, name, following("1.3.3"))
		first[name] = w.node(factory + "/" + name).Revision
		c.join(name, corev1.ConditionTrue)
		w.says(name, api.Report{AppliedConfigVersion: fmt.Sprint(first[name])})
	}
	for _, name := range names {
		w.put(factoryID, name, following(runc))
	}
	return first
}

// following returns a node that follows its resource, with a version of runc.
func following(runc string) flexnode.Desired {
	d := withIdentity("aaaaaaaa-0000-0000-0000-00000000000a")
	d.ContinuousMonitoring, d.Versions.Runc = true, runc
	return d
}

// says reports as a node's agent.
func (w *world) says(name string, report api.Report) {
	edit(w, w.store.Status, factory+"/"+name, func(s *flexnode.Status) { s.Report = report })
	synctest.Wait()
}

// fails reports that a node runs its first revision again, since the assigned one has failed.
func (w *world) fails(name string, first int64) {
	failed := &api.FailedConfig{Version: fmt.Sprint(w.node(factory + "/" + name).Revision)}
	w.says(name, api.Report{AppliedConfigVersion: fmt.Sprint(first),
		Config: &api.Applied{Failed: failed}})
}

func (w *world) applies(name string) {
	w.says(name, api.Report{AppliedConfigVersion: fmt.Sprint(w.node(factory + "/" + name).Assigned)})
}

// policy sets the cluster's rollout policy.
func (w *world) policy(p flexnode.RolloutPolicy) {
	edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
		c.Properties.RolloutPolicy = &p
	})
}

// admitted returns the nodes that are offered their desired revision, one letter each.
func (w *world) admitted(names ...string) string {
	all := ""
	for _, name := range names {
		if n := w.node(factory + "/" + name); n.Assigned == n.Revision {
			all += name
		}
	}
	return all
}

func (w *world) states() []flexnode.State {
	return must(w.store.Rollouts.Get(context.Background(), factory)).Value.Changes
}

// canary checks that a change reaches a, and only after its soak of a minute b, and not yet c.
func (w *world) canary() {
	w.t.Helper()
	equal(w.t, "those that are admitted at once", w.admitted("a", "b", "c"), "a")
	w.applies("a")
	pass(30 * time.Second)
	equal(w.t, "while the canary soaks", w.admitted("a", "b", "c"), "a")
	pass(time.Minute)
	equal(w.t, "after the canary", w.admitted("a", "b", "c"), "ab")
}

// A change reaches one node, and after its soak the others one by one; the next owner of the
// cluster continues.
func TestRollout(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.policy(flexnode.RolloutPolicy{Soak: "PT1M"})
		w.running(c, "1.3.4", "a", "b", "c")
		pass(5 * time.Second)
		w.canary()
		w.disown(factory)
		w.applies("b")
		pass(5 * time.Second)
		equal(t, "without an owner", w.admitted("a", "b", "c"), "ab")
		w.own(factory)
		pass(5 * time.Second)
		equal(t, "after the next owner has come", w.admitted("a", "b", "c"), "abc")
		w.applies("c")
		pass(5 * time.Minute)
		equal(t, "states that are left", len(w.states()), 0)
	})
}

// A canary that fails rolls back. The others keep their revision, and the change's state shows
// them; then one more failure is allowed.
func TestRolloutIsHeld(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		first := w.running(c, "1.3.4", "a", "b", "c")
		pass(5 * time.Second)
		w.fails("a", first["a"])
		pass(5 * time.Second)
		n := w.node(factory + "/a")
		if n.Assigned != first["a"] || n.Failed != n.Revision || n.Attempt.Outcome != flexnode.Bad {
			t.Fatalf("the canary: %+v", n)
		}
		pass(time.Hour)
		states := w.states()
		if got := w.admitted("a", "b", "c"); got != "" || len(states) != 1 ||
			states[0].Hold != flexnode.HeldCanary || states[0].Waiting != 2 ||
			len(states[0].Failed) != 1 || states[0].Settings[0] != "runc.version=1.3.4" {
			t.Fatalf("%q admitted; %+v", got, states)
		}
		edit(w, w.store.Rollouts, factory, func(r *flexnode.Rollout) {
			*r = must(r.Allow(api.AllowVersions{}, "ops", time.Now()))
		})
		pass(10 * time.Second)
		equal(t, "after it was allowed", w.admitted("a", "b", "c"), "b")
	})
}

// New facts restart kubelet if the address of DNS changes: the nodes get them one by one. A new
// address of the API server reaches all nodes at once, including held ones, one whose owner changes
// it before it was rendered again, and one that fails its change.
func TestFactsRollOut(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		first := w.running(c, "1.3.4", "a", "b", "c")
		pass(5 * time.Second)
		change := sync.OnceFunc(func() {
			w.change(func(v *store.View) error { return w.putIn(v, factoryID, "c", following("1.3.6")) })
		})
		w.store.Did = func(what string) {
			if what == "cluster probed" {
				change()
			}
		}
		w.moveAPIServer("https://moved.example/")
		pass(10 * time.Second)
		facts := w.cluster(factory).Facts
		moved := func(name string) {
			t.Helper()
			n := w.node(factory + "/" + name)
			offered := must(must(w.store.History.Get(context.Background(), factory+"/"+name)).Value.Find(
				n.Assigned))
			if n.Assigned >= n.Revision || offered.Facts != facts || offered.Repeats != first[name] {
				t.Errorf("%s is held back, with a new address: %+v, offered %+v", name, n, offered)
			}
		}
		moved("b")
		moved("c")
		equal(t, "those that are admitted", w.admitted("a", "b", "c"), "a")
		w.fails("a", first["a"])
		pass(10 * time.Second)
		moved("a")
	})
}

// Another address of DNS, such as a wrong one of the owner, restarts kubelet: the nodes get it one
// by one.
func TestAddressOfDNSRollsOut(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.policy(flexnode.RolloutPolicy{Soak: "PT1M"})
		w.running(c, "1.3.3", "a", "b", "c")
		pass(2 * time.Minute)
		equal(t, "before", w.admitted("a", "b", "c"), "abc")
		edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
			c.Properties.DNSServiceIP, c.Version = "10.96.0.99", "2"
		})
		pass(10 * time.Second)
		w.canary()
	})
}

// A paused node is passed over, and is no canary. Once resumed, it gets the waiting change.
func TestPausedNodes(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.running(c, "1.3.4", "a", "b")
		pause := func(paused bool) {
			d := following("1.3.4")
			d.UpgradePolicy.Paused = paused
			w.put(factoryID, "a", d)
		}
		pause(true)
		pass(5 * time.Second)
		equal(t, "those that are admitted while a is paused", w.admitted("a", "b"), "b")
		w.applies("b")
		revision := w.node(factory + "/a").Revision
		pause(false)
		pass(20 * time.Minute)
		if n := w.node(factory + "/a"); n.Assigned != n.Revision || n.Revision != revision {
			t.Errorf("after a was resumed: %+v; it wanted %d before", n, revision)
		}
	})
}
