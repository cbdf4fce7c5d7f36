package store

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// feed passes changes of the store to listeners. A process follows the store once, by Index.Follow;
// Sync and Wait of tables are listeners.
type feed struct {
	mu sync.Mutex
	by map[string][]*listener // by key or prefix
}

// listener receives the changes of a row, or of all rows below a prefix that ends with a slash.
type listener struct {
	// told is full when there are changes to take.
	told chan struct{}
	// Guarded by feed.mu: the changes since the last take, whether some are missing, and whether
	// the store has gone back.
	events       []Event
	missed, back bool
}

// maxHeld limits the changes held for a listener; a slower one reads its rows again.
const maxHeld = 10_000

// listen returns a listener, and a function that ends it.
func (f *feed) listen(to string) (l *listener, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l = &listener{told: make(chan struct{}, 1)}
	f.by[to] = append(f.by[to], l)
	return l, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.by[to] = slices.DeleteFunc(f.by[to], func(o *listener) bool { return o == l })
		if len(f.by[to]) == 0 {
			delete(f.by, to)
		}
	}
}

// take returns the changes for a listener since the last call. After missed it must read its rows
// again; after back they may have other values at the same revisions.
func (f *feed) take(l *listener) (events []Event, missed, back bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, missed, back = l.events, l.missed, l.back
	l.events, l.missed, l.back = nil, false, false
	return events, missed, back
}

func (f *feed) tell(events []Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		f.hand(e.Key, e)
		for at := strings.LastIndexByte(e.Key, '/'); at > 0; at = strings.LastIndexByte(e.Key[:at], '/') {
			f.hand(e.Key[:at+1], e)
		}
	}
}

func (f *feed) hand(to string, e Event) {
	for _, l := range f.by[to] {
		if l.events = append(l.events, e); len(l.events) > maxHeld {
			l.events, l.missed = nil, true
		}
		Signal(l.told)
	}
}

// skip makes all listeners read their rows again: some changes were missed.
func (f *feed) skip(back bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range f.by {
		for _, l := range all {
			l.events, l.missed, l.back = nil, true, l.back || back
			Signal(l.told)
		}
	}
}

// Wait reads a row, and again after each change, until wanted reports true or ctx ends. It returns
// the row as last read; the error is the one of a failed read. It gets changes from the process'
// index (Index.Follow), and reads nothing while the row does not change.
func (t Table[T]) Wait(ctx context.Context, key string, wanted func(Row[T]) bool) (Row[T], error) {
	l, leave := t.store.feed.listen(t.prefix + key)
	defer leave()
	row, err := t.Get(ctx, key)
	for err == nil && !wanted(row) {
		select {
		case <-ctx.Done():
			return row, nil
		case <-l.told:
			t.store.feed.take(l)
		}
		next, failed := t.Get(ctx, key)
		if failed != nil && ctx.Err() != nil {
			return row, nil
		}
		row, err = next, failed
	}
	return row, err
}
