package front

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// calls counts the calls to the world's store of a kind.
func (w *world) calls(op string) *atomic.Int64 {
	var n atomic.Int64
	w.memory.Before(func(c store.Call) error {
		if c.Op == op {
			n.Add(1)
		}
		return nil
	})
	w.t.Cleanup(func() { w.memory.Before(nil) })
	return &n
}

// A DELETE that waits for a cluster that is down does not read the store meanwhile.
func TestDeleteDoesNotPoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	w.cluster.isDown.Store(true)
	w.api.Patience = time.Second
	reads := w.calls("read")
	time.AfterFunc(w.api.Patience/2, func() { reads.Store(0) }) // it waits by then
	w.must(200, "DELETE", nodeURL("n"), "")
	if got := reads.Load(); got > 3 { // a poll every 50 ms would be 10
		t.Errorf("while it waited it has read the store %d times", got)
	}
}

// PUTs that wait for their cluster share one watch.
func TestPutsWaitTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
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
	if got := follows.Load(); got > 2 {
		t.Errorf("they have opened %d watches", got)
	}
}
