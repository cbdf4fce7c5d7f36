package cluster

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// replica is one of several replicas of a provider.
type replica struct {
	*world
	stop func()
}

// joinReplica starts another replica that takes part in the work.
func joinReplica(w *world, name string) *replica {
	t := w.t
	r := &replica{world: &world{t: t, audit: w.audit,
		source: &fakeSource{clusters: w.source.clusters}}}
	r.start(w.memory.Another(), w.credentials.Keys)
	membership := store.NewMembership(r.store, name)
	r.manager.Membership = membership
	membership.Try = r.manager.Try
	r.manager.Log = r.manager.Log.With("replica", name)
	ctx, cancel := context.WithCancel(context.Background())
	joined, leave := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { membership.Run(joined) })
	wg.Go(func() {
		r.manager.Run(ctx)
		leave()
	})
	r.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(r.stop)
	return r
}

// works returns the clusters on which a replica may work.
func (r *replica) works() string {
	r.manager.mu.RLock()
	defer r.manager.mu.RUnlock()
	var keys []string
	for key, w := range r.manager.working {
		if !w.ended() && w.owner.Valid() {
			keys = append(keys, key[strings.LastIndex(key, "/")+1:])
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// Replicas share the clusters. When one is killed or leaves, the other takes over its clusters, and
// no cluster ever has two owners.
func TestReplicasShareTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := registered(t)
		w.register(harbourID, newFakeCluster("harbour"))
		first, other := joinReplica(w, "a"), joinReplica(w, "b")
		pass(time.Minute)
		both := strings.Fields(first.works() + " " + other.works())
		slices.Sort(both)
		equal(t, "the work", strings.Join(both, " "), "factory harbour")
		w.token("edge-1")
		if !strings.Contains(first.works(), "factory") {
			first, other = other, first
		}
		first.memory.Kill()
		pass(time.Minute)
		equal(t, "the other one works on", other.works(), "factory harbour")
		equal(t, "the dead one works on", first.works(), "")
		equal(t, "a request", c.Ask(w.joining("first", "edge-1")), "Approved")
		third := joinReplica(w, "c")
		other.stop()
		pass(time.Minute)
		equal(t, "the third one works on", third.works(), "factory harbour")
	})
}

// N10: a cluster that its owner does not reach moves to a replica that does.
func TestAClusterGoesToWhoReachesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := registered(t)
		first, other := joinReplica(w, "a"), joinReplica(w, "b")
		pass(time.Minute)
		if first.works() == "" {
			first, other = other, first
		}
		first.source.cut.Store(true)
		pass(2 * time.Minute)
		equal(t, "the other one works on", other.works(), "factory")
		equal(t, "the first one works on", first.works(), "")
		equal(t, "the cluster is reachable", w.cluster(factory).Properties.Reachable, true)
	})
}

// A replica whose store fails for a while continues afterwards, without a restart.
func TestAFailingStoreEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := registered(t)
		r := joinReplica(w, "a")
		pass(time.Minute)
		r.memory.Before(func(storetest.Call) error { return errDown })
		pass(time.Minute)
		equal(t, "without its store it works on", r.works(), "")
		w.put(factoryID, "edge-1", flexnode.Desired{})
		r.memory.Before(nil)
		pass(time.Minute)
		equal(t, "afterwards it works on", r.works(), "factory")
		equal(t, "the credential", w.credential(factory+"/edge-1").Value.State, store.Live)
	})
}

// N18: an owned cluster without tasks costs few goroutines.
func TestIdleClustersCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		w := newWorld(t)
		before := runtime.NumGoroutine()
		for i := range n {
			key := fmt.Sprintf("%s/edge/c%d", subscription, i)
			w.change(func(v *store.View) error {
				return w.store.Clusters.Put(v, key, flexnode.Cluster{ID: factoryID, UID: key})
			})
			w.own(key)
		}
		pass(time.Minute)
		if got := runtime.NumGoroutine() - before; got > 6*n {
			t.Errorf("%d clusters have %d goroutines", n, got)
		}
	})
}

// N18: however many clusters stall, others get their turn; no cluster exceeds its places, and a
// closed line starts no task.
func TestClustersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(firstPause, lastPause)
		defer p.queue.ShutDown()
		stall := make(chan struct{})
		var running, most atomic.Int64
		var stalled []*line
		for i := range 200 {
			l := &line{pool: p, do: func(task) {
				most.Store(max(most.Load(), running.Add(1)))
				<-stall
				running.Add(-1)
			}}
			stalled = append(stalled, l)
			for j := range 20 {
				l.Add(task{taskNode, fmt.Sprint(i, j)})
			}
			synctest.Wait()
			if l.running > linePlaces {
				t.Errorf("a cluster has %d places", l.running)
			}
		}
		var done atomic.Int64
		other := &line{pool: p, do: func(task) { done.Add(1) }}
		for j := range 20 {
			other.Add(task{taskNode, fmt.Sprint(j)})
		}
		synctest.Wait()
		if done.Load() != 20 || p.running >= poolPlaces {
			t.Errorf("%d of 20 tasks are done, %d places are taken", done.Load(), p.running)
		}
		for _, l := range stalled {
			go l.close()
		}
		synctest.Wait()
		begun := running.Load()
		close(stall)
		synctest.Wait()
		if running.Load() != 0 || most.Load() > begun {
			t.Errorf("%d tasks, %d at once, %d are left", begun, most.Load(), running.Load())
		}
	})
}

// A task runs once however often it is added, again if it was added while it ran, and later after a
// failure.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(firstPause, lastPause)
		defer p.queue.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		var done atomic.Int64
		l := &line{pool: p}
		l.do = func(x task) {
			if done.Add(1) == 1 {
				l.Add(x)
				l.Add(x)
				<-ctx.Done()
			}
		}
		one := task{kind: taskNode}
		for range 3 {
			l.Add(one)
		}
		synctest.Wait()
		equal(t, "how often it is done at once", done.Load(), 1)
		cancel()
		synctest.Wait()
		l.AddAfter(one, time.Minute)
		pass(time.Second)
		equal(t, "how often it was done", done.Load(), 2)
		pass(time.Minute)
		l.AddRateLimited(one)
		l.close()
		pass(time.Minute)
		equal(t, "how often it was done until it was closed", done.Load(), 3)
	})
}

// A task of a worker that has ended leaves nothing in the pool, also if it has failed before. One
// that waits for its time does not keep the worker in memory.
func TestEndedWorkerIsForgotten(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		worker := w.manager.working[factory]
		j := job{worker.tasks, task{kind: "none"}}
		j.line.AddRateLimited(j.task)
		do := j.line.do
		worker.stop()
		<-worker.done
		equal(t, "the line has its worker", j.line.do != nil, false)
		do(j.task)
		equal(t, "the failures that are remembered", j.line.pool.queue.NumRequeues(j), 0)
	})
}

// A revoked credential of a cluster that does not answer ends with its token, also under another
// owner; its node, if a restore has revoked it, does not wait for ever.
func TestRevokedCredentialsEndAfterAHandover(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.token("edge-1")
		key := w.node(factory + "/edge-1").Credential
		c.Down.Store(true)
		pass(5 * time.Minute)
		w.drop("edge-1")
		w.put(factoryID, "edge-2", flexnode.Desired{})
		pass(time.Minute)
		w.disown(factory)
		edit(w, w.store.Credentials, w.node(factory+"/edge-2").Credential,
			func(c *store.Credential) { c.State = store.Revoking })
		pass(time.Minute)
		w.own(factory)
		pass(25 * time.Hour)
		row := must(w.store.Credentials.Get(context.Background(), key))
		equal(t, "the credential is left", row.Exists(), false)
		if n := w.node(factory + "/edge-2"); n.State != "" || n.Reason == "" {
			t.Errorf("the node is %q: %q", n.State, n.Reason)
		}
	})
}
