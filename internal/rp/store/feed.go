package store

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// feed passes the changes of the store on to listeners: Index.Follow is the one follow of a
// process, and Sync and Wait of tables hear of rows from it.
type feed struct {
	mu sync.Mutex
	by map[string][]*listener // by key or prefix
}

// listener hears of a row, or of all rows below a prefix that ends with a slash.
type listener struct {
	// told has something in it when there is something to take.
	told chan struct{}
	// Guarded by feed.mu: the changes since they were taken last, whether some are missing, and
	// whether the store has gone back.
	events       []Event
	missed, back bool
}

// maxHeld limits the changes that are held for a listener; one that is slower reads its rows again.
const maxHeld = 10_000

// listen returns a listener, and ends it by leave.
func (f *feed) listen(to string) (l *listener, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string][]*listener{}
	}
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

// take returns what a listener has heard of since it was called last. After missed the rows are to
// be read again; after back they may have other values at the same revisions.
func (f *feed) take(l *listener) (events []Event, missed, back bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, missed, back = l.events, l.missed, l.back
	l.events, l.missed, l.back = nil, false, false
	return events, missed, back
}

// tell passes changes on.
func (f *feed) tell(events []Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.by) == 0 {
		return
	}
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
		signal(l.told)
	}
}

// skip has all who listen read their rows again: some changes were not heard of.
func (f *feed) skip(back bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range f.by {
		for _, l := range all {
			l.events, l.missed, l.back = nil, true, l.back || back
			signal(l.told)
		}
	}
}

// again has one of them read its rows again.
func (f *feed) again(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.events, l.missed = nil, true
	signal(l.told)
}

// Wait reads a row, and again each time that it has changed, until it is as wanted or ctx ends. It
// returns the row as it was read last; the error is why it cannot be read. It hears of changes from
// the process' index (Index.Follow), and reads nothing as long as the row does not change.
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
