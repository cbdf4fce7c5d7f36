package front

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// BenchmarkLongPoll has 10,000 polls wait, without TLS and connections, and changes each node once,
// a thousand in a second: wake-ms is the 99th percentile of the time from the commit of a node's
// change to the end of the answer to its poll, bytes/waiter what one that waits takes, with its
// goroutine and request.
func BenchmarkLongPoll(b *testing.B) {
	const nodes, perSecond = 10_000, 1000
	w := newWorld(b)
	w.register("")
	w.must(201, "PUT", nodeURL("n"), nodeOf(clientA, "x"))
	w.caughtUp()
	w.api.Waiters = NewWaiters(10*time.Minute, nodes)
	w.index.Subscribe(w.api.Waiters.Wake)
	w.copyNode(nodes)
	for b.Loop() {
		before := heapInUse()
		committed, answered := make([]time.Time, nodes), make([]time.Time, nodes)
		var polls sync.WaitGroup
		for i := range nodes {
			polls.Go(func() {
				w.pollOnce(b, i)
				answered[i] = time.Now()
			})
		}
		w.until("all wait", func() bool { return w.api.Waiters.Count() == nodes })
		b.ReportMetric(float64(heapInUse()-before)/nodes, "bytes/waiter")
		tick := time.NewTicker(time.Second / perSecond * 10)
		for i := range nodes {
			if i%10 == 0 {
				<-tick.C
			}
			w.touch(b, i)
			committed[i] = time.Now()
		}
		tick.Stop()
		polls.Wait()
		took := make([]time.Duration, nodes)
		for i := range took {
			took[i] = answered[i].Sub(committed[i])
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[nodes*99/100].Microseconds())/1000, "wake-ms")
		b.ReportMetric(float64(took[nodes/2].Microseconds())/1000, "wake-p50-ms")
	}
}

func copyName(i int) string { return fmt.Sprintf("copy-%05d", i) }

// copyNode stores so many nodes that are as the node n.
func (w *world) copyNode(nodes int) {
	n := w.storedNode("n")
	history := must(w.api.Store.History.Get(w.t.Context(), clusterKey+"/n"))
	for i := range nodes {
		w.changeOnly(func(v *store.View) error {
			key := clusterKey + "/" + copyName(i)
			if err := w.api.Store.History.Set(v, key, history.Value); err != nil {
				return err
			}
			return w.api.Store.Nodes.Set(v, key, n)
		})
	}
	w.caughtUp()
}

func (w *world) changeOnly(decide func(*store.View) error) {
	must(w.api.Store.Update(w.t.Context(), "test", nil, decide))
}

// touch gives a node another ETag.
func (w *world) touch(b *testing.B, i int) {
	key := clusterKey + "/" + copyName(i)
	poll, _ := w.index.Poll(key)
	w.changeOnly(func(v *store.View) error {
		row := w.api.Store.Nodes.Row(v, key)
		if row.Value.ETag() != poll.ETag {
			b.Errorf("the index has %s, want %s", poll.ETag, row.Value.ETag())
		}
		row.Value.Revision++ // its owner wants another, which agents are not offered yet
		return w.api.Store.Nodes.Put(v, key, row.Value)
	})
}

// pollOnce polls a node and expects that it changes.
func (w *world) pollOnce(b *testing.B, i int) {
	poll, _ := w.index.Poll(clusterKey + "/" + copyName(i))
	recorder := w.serve(http.MethodGet, nodeURL(copyName(i)), nil,
		"If-None-Match: "+poll.ETag, "Prefer: wait=600")
	if recorder.Code != http.StatusOK {
		b.Errorf("%d: %s", recorder.Code, recorder.Body)
	}
}

// heapInUse returns the memory that heap and stacks take.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
