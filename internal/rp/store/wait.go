package store

import (
	"context"
	"errors"
	"sync"
)

// Wait reads a row, and again each time that it has changed, until it is as wanted or ctx ends. It
// returns the row as it was read last; the error is why it cannot be read. All who wait for rows of
// a table share one Follow of it, and read nothing as long as their rows do not change.
func (t Table[T]) Wait(
	ctx context.Context, key string, wanted func(Row[T]) bool,
) (Row[T], error) {
	changed, leave := t.store.waits.enter(t.store, t.prefix, t.prefix+key)
	defer leave()
	row, err := t.Get(ctx, key)
	for err == nil && !wanted(row) {
		select {
		case <-ctx.Done():
			return row, nil
		case <-changed:
		}
		next, failed := t.Get(ctx, key)
		if failed != nil && ctx.Err() != nil {
			return row, nil
		}
		row, err = next, failed
	}
	return row, err
}

// waits are those who wait for rows, by the prefix that is followed for them.
type waits struct {
	mu sync.Mutex
	of map[string]*waiting
}

// waiting is those who wait for rows below one prefix.
type waiting struct {
	stop context.CancelFunc
	// by has, for each key, the channels of those who wait for it: full if they are to read it.
	by    map[string]map[chan struct{}]bool
	count int
	// followed tells that changes are being followed: who comes misses none after his first
	// reading.
	followed bool
}

// enter adds somebody who waits for a key. changed has something in it whenever the row is to be
// read again: when it has changed, or may have.
func (w *waits) enter(s *Store, prefix, key string) (changed chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.of[prefix]
	if x == nil {
		var ctx context.Context
		x = &waiting{by: map[string]map[chan struct{}]bool{}}
		ctx, x.stop = context.WithCancel(context.Background())
		if w.of == nil {
			w.of = map[string]*waiting{}
		}
		w.of[prefix] = x
		go w.follow(ctx, s, prefix, x)
	}
	changed = make(chan struct{}, 1)
	if x.by[key] == nil {
		x.by[key] = map[chan struct{}]bool{}
	}
	x.by[key][changed] = true
	x.count++
	return changed, func() { w.leave(prefix, x, key, changed) }
}

// leave takes one out; with the last one the following ends.
func (w *waits) leave(prefix string, x *waiting, key string, changed chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(x.by[key], changed)
	if len(x.by[key]) == 0 {
		delete(x.by, key)
	}
	if x.count--; x.count == 0 {
		x.stop()
		delete(w.of, prefix)
	}
}

// follow tells those who wait below a prefix of changes, until nobody waits. After a break, and
// when the store has gone back, all of them are told: what has changed meanwhile is not known.
func (w *waits) follow(ctx context.Context, s *Store, prefix string, x *waiting) {
	for ctx.Err() == nil {
		_, at, err := s.Read(ctx, prefix)
		if err == nil {
			w.tell(x, nil)
			err = s.followOn(ctx, prefix, func() int64 { return at }, func(b Batch) {
				w.tell(x, b.Events)
				at = b.Revision
			})
		}
		w.mu.Lock()
		x.followed = false
		w.mu.Unlock()
		if !errors.Is(err, ErrCompacted) && !errors.Is(err, errWentBack) {
			Pause(ctx, followPause)
		}
	}
}

// tell has those read whose rows have changed; nil is all of them.
func (w *waits) tell(x *waiting, events []Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wake := func(key string) {
		for changed := range x.by[key] {
			select {
			case changed <- struct{}{}:
			default: // it is to be read anyway
			}
		}
	}
	if events == nil && !x.followed {
		x.followed = true
		for key := range x.by {
			wake(key)
		}
	}
	for _, e := range events {
		wake(e.Key)
	}
}
