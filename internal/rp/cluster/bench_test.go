package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// BenchmarkOutstanding is the cost of one PUT with a URL, from its row being written to its
// credential being Live, and of doing nothing, beside credentials that wait for their machines.
func BenchmarkOutstanding(b *testing.B) {
	for _, outstanding := range []int{0, 10_000, 50_000} {
		b.Run(fmt.Sprint(outstanding), func(b *testing.B) { benchOutstanding(b, outstanding) })
	}
}

func benchOutstanding(b *testing.B, outstanding int) {
	w := newFactory(b)
	live := make(chan struct{}, 1)
	w.store.Did = func(what string) {
		if what == "credential live" {
			live <- struct{}{}
		}
	}
	w.own(factory)
	w.untilReached()
	w.seed(outstanding)
	memory := w.store.Backend.(*storetest.Memory)
	calm(b, w, outstanding)
	idle := memory.Reads()
	time.Sleep(time.Second)
	idle = memory.Reads() - idle
	reads := memory.Reads()
	b.ResetTimer()
	for i := range b.N {
		w.change(func(v *store.View) error {
			return w.putIn(v, factoryID, fmt.Sprintf("fresh-%d", i), api.Desired{})
		})
		<-live
	}
	b.StopTimer()
	b.ReportMetric(float64(memory.Reads()-reads)/float64(b.N), "reads/op")
	b.ReportMetric(float64(idle), "idle-reads/s")
}

// newFactory is a world with a cluster that is registered.
func newFactory(b *testing.B) *world {
	w := newWorld(b)
	w.manager.Log = slog.New(slog.DiscardHandler)
	w.source.point(factory, newFakeCluster("factory"))
	w.change(func(v *store.View) error {
		return w.store.Clusters.Put(v, factory, flexnode.Cluster{
			ID: factoryID, UID: uuid.NewString(), Location: "westeurope", Version: "1"})
	})
	return w
}

// BenchmarkTakeover is the cost of a cluster coming to another replica, beside credentials that
// wait for their machines: until it is reached and all of them are known.
func BenchmarkTakeover(b *testing.B) {
	for _, outstanding := range []int{0, 10_000, 50_000} {
		b.Run(fmt.Sprint(outstanding), func(b *testing.B) { benchTakeover(b, outstanding) })
	}
}

func benchTakeover(b *testing.B, outstanding int) {
	w := newFactory(b)
	_, end := w.own(factory)
	w.untilReached()
	w.seed(outstanding)
	calm(b, w, outstanding)
	memory := w.store.Backend.(*storetest.Memory)
	reads := int64(0)
	for b.Loop() {
		end()
		before := memory.Reads()
		_, end = w.own(factory)
		w.untilReached()
		calm(b, w, outstanding)
		reads += memory.Reads() - before
	}
	b.ReportMetric(float64(reads)/float64(b.N), "reads/op")
}

// untilReached waits until the cluster is worked in.
func (w *world) untilReached() {
	for {
		if _, err := w.manager.working[factory].use(); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// seed writes nodes with live credentials.
func (w *world) seed(n int) {
	const batch = 30
	facts, now := w.cluster(factory).Facts, time.Now().UTC().Truncate(time.Second)
	for from := 0; from < n; from += batch {
		w.change(func(v *store.View) error {
			for i := from; i < min(n, from+batch); i++ {
				node := fmt.Sprintf("%s/edge-%d", factory, i)
				key, id, uid := factory+"/"+uuid.NewString(), fmt.Sprintf("t%05d",
					i), uuid.NewString()
				err := w.store.Credentials.Set(v, key, store.Credential{Node: node, UID: uid,
					Cluster: factory, State: store.Live, Config: 1, TokenID: id, Created: now,
					Since: now, Expires: now.Add(24 * time.Hour)})
				if err == nil {
					err = w.store.Nodes.Set(v, node, flexnode.Node{UID: uid, Credential: key,
						Revision: 1, Assigned: 1, Facts: facts})
				}
				if err == nil {
					err = w.store.Tokens.Set(v, factory+"/"+id, key)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// calm waits until the worker knows all credentials and has nothing to do.
func calm(b *testing.B, w *world, outstanding int) {
	b.Helper()
	worker := w.manager.working[factory]
	health := must(w.store.Health(context.Background()))
	for w.index.Revision() < health.Revision || len(worker.outstanding.keys()) < outstanding ||
		worker.tasks.pool.queue.Len() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
}
