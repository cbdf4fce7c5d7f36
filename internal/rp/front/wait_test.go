package front

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// calls counts the calls to the world's store of a kind.
func (w *world) calls(op string) *atomic.Int64 {
	var n atomic.Int64
	w.memory.Before(func(c storetest.Call) error {
		if c.Op == op {
			n.Add(1)
		}
		return nil
	})
	w.t.Cleanup(func() { w.memory.Before(nil) })
	return &n
}

// A DELETE that waits for a cluster that is down does not read the store meanwhile, and little
// before and after.
func TestDeleteDoesNotPoll(t *testing.T) {
	warm := newWorld(t) // what is made once is made outside of the bubble of time
	warm.register("")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.register("")
		w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
		w.cluster.isDown.Store(true)
		w.api.Patience = time.Minute
		reads := w.calls("read")
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.must(200, "DELETE", nodeURL("n"), "")
		}()
		time.Sleep(time.Second) // it waits by then
		before := reads.Load()
		time.Sleep(w.api.Patience - 2*time.Second)
		if got := reads.Load(); got != before {
			t.Errorf("while it waited it has read the store %d times", got-before)
		}
		// Five reads are its own, and seven are of the worker that revokes the credential.
		if <-done; reads.Load() > 12 {
			t.Errorf("it has read the store %d times", reads.Load())
		}
	})
}

// PUTs that wait for their cluster open no watch: they hear from the process' index.
func TestPutsWaitTogether(t *testing.T) {
	w := newEdge(t)
	w.cluster.isDown.Store(true)
	w.api.Patience = 3 * time.Second
	follows := w.calls("follow")
	var running sync.WaitGroup
	for i := range 10 {
		running.Go(func() {
			r := w.do("PUT", nodeURL(fmt.Sprintf("n%d", i))+"&configUrl=true", withToken)
			if r.StatusCode != 201 {
				t.Errorf("status %d", r.StatusCode)
			}
		})
	}
	running.Wait()
	if got := follows.Load(); got > 0 {
		t.Errorf("they have opened %d watches", got)
	}
}
