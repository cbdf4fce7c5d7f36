package front

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Waiters holds the polls of this replica that wait until their nodes change (Prefer: wait=N, RFC
// 7240). Only a change of its node in the index wakes a poll: a poll that waits costs its
// connection, an entry here and a timer.
type Waiters struct {
	longest time.Duration
	most    int

	// End ends all waits: their polls, and later ones, are answered at once.
	End   context.CancelFunc
	ended context.Context

	mu    sync.Mutex
	of    map[string][]*waiter // of each node, by its key
	count int
}

// waiter is one poll that waits; a nil waiter does not wait.
type waiter struct {
	of    *Waiters
	key   string
	own   bool          // of the node's agent
	woken chan struct{} // full when it must look at its node
	// granted limits the wait.
	granted time.Duration
	began   time.Time
	timer   *time.Timer
}

// maxPerNode limits the waiting polls of a node's agent, including abandoned ones, and those of
// other callers: people must not keep the agent from waiting.
const maxPerNode = 4

// NewWaiters lets up to most polls wait at once, each for at most longest.
func NewWaiters(longest time.Duration, most int) *Waiters {
	w := &Waiters{longest: longest, most: most, of: map[string][]*waiter{}}
	w.ended, w.End = context.WithCancel(context.Background())
	return w
}

// Wake wakes the polls that wait for a changed row; the index calls it (Index.Subscribe).
func (w *Waiters) Wake(table, key string) {
	if table != "nodes" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.of[key] {
		store.Signal(x.woken)
	}
}

// Count returns the number of waiting polls.
func (w *Waiters) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// begin starts the wait of a poll for its node; nil if it prefers none, or too many wait. It misses
// no change from now on.
func (w *Waiters) begin(r *request) *waiter {
	granted := min(preferredWait(r.Header), w.longest)
	if granted <= 0 || !r.isPoll() {
		return nil
	}
	x := &waiter{
		of: w, key: r.nodeKey(), own: r.node, woken: make(chan struct{}, 1), granted: granted,
		began: time.Now(),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	alike := 0
	for _, other := range w.of[x.key] {
		if other.own == x.own {
			alike++
		}
	}
	if w.count >= w.most || alike >= maxPerNode {
		return nil
	}
	w.of[x.key] = append(w.of[x.key], x)
	w.count++
	return x
}

// end ends the wait when a poll is answered, and returns its duration.
func (x *waiter) end() time.Duration {
	if x == nil {
		return 0
	}
	w := x.of
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	left := slices.DeleteFunc(w.of[x.key], func(other *waiter) bool { return other == x })
	if w.of[x.key] = left; len(left) == 0 {
		delete(w.of, x.key)
	}
	if x.timer == nil {
		return 0
	}
	x.timer.Stop()
	return time.Since(x.began)
}

// applied reports whether the poll was allowed to wait as long as was granted.
func (x *waiter) applied() bool { return x != nil && x.of.ended.Err() == nil }

// next waits for the next change of the node. It returns false without a change within the granted
// time, and at once when the replica stops.
func (x *waiter) next(r *request) (bool, error) {
	if x.timer == nil {
		x.timer = time.NewTimer(x.granted)
		// The connection must outlast the wait and the writing of an answer. The next request sets its
		// own deadlines; a connection without deadlines needs none.
		c, until := http.NewResponseController(r.answer), x.began.Add(x.granted+30*time.Second)
		_ = c.SetReadDeadline(until)
		_ = c.SetWriteDeadline(until)
	}
	select {
	case <-x.woken:
		return x.of.ended.Err() == nil, nil
	case <-r.Context().Done():
		return false, r.Context().Err()
	case <-x.of.ended.Done():
	case <-x.timer.C:
	}
	return false, nil
}

// preferredWait returns the time that a caller prefers to wait (RFC 7240, section 4.3): the first
// such preference; 0 for none, or one that is not understood.
func preferredWait(h http.Header) time.Duration {
	for _, value := range h["Prefer"] {
		for one := range strings.SplitSeq(value, ",") {
			one, _, _ = strings.Cut(one, ";")
			name, seconds, _ := strings.Cut(one, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(seconds), `"`), 10, 16)
			if err != nil {
				return 0
			}
			return time.Duration(n) * time.Second
		}
	}
	return 0
}
