package cluster

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// N18: an owned cluster costs few goroutines while there is nothing to do in it.
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

// N18: however many clusters stall, others get their turn; none has more than its places, and what
// is closed is not begun.
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

// A task is done once however often it is added, again if it was added while it was done, and later
// after a failure.
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
		if done.Load() != 1 {
			t.Errorf("it is done %d times at once", done.Load())
		}
		cancel()
		synctest.Wait()
		l.AddAfter(one, time.Minute)
		pass(time.Second)
		if done.Load() != 2 {
			t.Errorf("it was done %d times", done.Load())
		}
		pass(time.Minute)
		l.AddRateLimited(one)
		l.close()
		pass(time.Minute)
		if done.Load() != 3 {
			t.Errorf("it was done %d times until it was closed", done.Load())
		}
	})
}
