package front

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Waiters holds the polls of this replica that wait until their nodes change (Prefer: wait=N, RFC
// 7240). Only a change of its node in the index wakes a poll: a poll that waits costs its
// connection, an entry here and a timer.
type Waiters struct {
	longest time.Duration
	most    int

	// End ends all waits: their polls are answered at once.
	End   context.CancelFunc
	ended context.Context

	mu    sync.Mutex
	of    map[string][]*waiter // of each node, by its key
	count int
}

// waiter is one poll that waits.
type waiter struct {
	own   bool          // of the node's agent
	woken chan struct{} // full when it must look at its node
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
		select {
		case x.woken <- struct{}{}:
		default: // it will look anyway
		}
	}
}

// Count returns the number of waiting polls.
func (w *Waiters) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// enter adds a poll that waits for a node, its agent's or another; nil if there are too many.
func (w *Waiters) enter(key string, own bool) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	alike := 0
	for _, x := range w.of[key] {
		if x.own == own {
			alike++
		}
	}
	if w.ended.Err() != nil || w.count >= w.most || alike >= maxPerNode {
		return nil
	}
	x := &waiter{own: own, woken: make(chan struct{}, 1)}
	w.of[key] = append(w.of[key], x)
	w.count++
	return x
}

func (w *Waiters) leave(key string, gone *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	left := slices.DeleteFunc(w.of[key], func(x *waiter) bool { return x == gone })
	if w.of[key] = left; len(left) == 0 {
		delete(w.of, key)
	}
}

// wait is the wait of one poll; the zero value does not wait.
type wait struct {
	of    *Waiters
	key   string
	entry *waiter
	// granted limits the wait.
	granted time.Duration
	began   time.Time
	timer   *time.Timer
}

// begin starts the wait of a poll, if it prefers one and may. It misses no change from now on.
func (w *Waiters) begin(r *request) wait {
	granted := min(preferredWait(r.Header), w.longest)
	if granted <= 0 || !r.isPoll() {
		return wait{}
	}
	entry := w.enter(r.nodeKey(), r.node)
	if entry == nil {
		return wait{}
	}
	return wait{of: w, key: r.nodeKey(), entry: entry, granted: granted, began: time.Now()}
}

// end ends the wait when a poll is answered, and returns its duration.
func (w *wait) end() time.Duration {
	if w.entry == nil {
		return 0
	}
	w.of.leave(w.key, w.entry)
	if w.timer == nil {
		return 0
	}
	w.timer.Stop()
	return time.Since(w.began)
}

// applied reports whether the poll was allowed to wait as long as was granted.
func (w *wait) applied() bool { return w.entry != nil && w.of.ended.Err() == nil }

// next waits for the next change of the node; the poll must be allowed to wait. It returns false
// without a change within the granted time, and at once when the replica stops.
func (w *wait) next(r *request) (bool, error) {
	if w.timer == nil {
		w.timer = time.NewTimer(w.granted)
		w.extend(r.answer)
	}
	select {
	case <-w.of.ended.Done():
		return false, nil
	case <-w.entry.woken:
		return w.of.ended.Err() == nil, nil
	case <-w.timer.C:
		return false, nil
	case <-r.Context().Done():
		return false, r.Context().Err()
	}
}

// answerMargin limits the time to write an answer after a wait.
const answerMargin = 30 * time.Second

// extend extends the connection's deadlines over the wait; the next request sets its own.
func (w *wait) extend(answer http.ResponseWriter) {
	c, until := http.NewResponseController(answer), w.began.Add(w.granted+answerMargin)
	_ = c.SetReadDeadline(until) // a connection without deadlines needs none
	_ = c.SetWriteDeadline(until)
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
