package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// Index is a replica's copy of the indexed tables, which follows the store. It answers polls and
// lists, so that they cost the store nothing; it is a little behind the store. Reads take no lock:
// each batch of changes makes a new snapshot, which shares unchanged parts with the previous one.
type Index struct {
	store    *Store
	snapshot atomic.Pointer[snapshot]
	// heard is the time of the last answer of the store, in Unix nanoseconds.
	heard atomic.Int64
	// seen receives each row of Seen.
	seen func(key string, value []byte)

	mu    sync.Mutex // guards the following
	tally tally
	sees  []*func(table, key string)

	writing sync.Mutex // held while a snapshot is made
}

// NewIndex returns an empty index; Load fills it.
func NewIndex(s *Store) *Index {
	x := &Index{store: s, tally: newTally()}
	x.snapshot.Store(newSnapshot())
	return x
}

// Load reads all indexed rows.
func (x *Index) Load(ctx context.Context) error { return x.load(ctx, false) }

// load reads all rows, and reports all old and new rows as changed, since the changes are unknown.
// back reports that the store has gone back.
func (x *Index) load(ctx context.Context, back bool) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	for {
		d := &draft{index: x, whole: true, next: newSnapshot(), change: newTally()}
		now := x.snapshot.Load()
		noteKeys(d, now.nodes, nodesTable, statusTable)
		noteKeys(d, now.clusters, clustersTable)
		noteKeys(d, now.subscriptions, subscriptionsTable)
		at, err := x.store.pages(ctx, indexed, func(kvs []KV) error {
			events := make([]Event, len(kvs))
			for i, kv := range kvs {
				events[i].KV = kv
			}
			d.apply(events)
			return nil
		})
		switch {
		case err == nil:
			x.publish(d, at)
			x.store.feed.skip(back)
			return nil
		case !errors.Is(err, ErrCompacted): // else start again
			return fmt.Errorf("cannot load the index: %w", err)
		}
	}
}

// Follow keeps the index up to date until ctx ends. It resumes after the last change that it has
// seen, and loads everything again only if the store does not keep the changes since. It calls say
// at each interruption. A process calls it once: Sync and Wait of all tables get changes from it,
// after the index has them.
func (x *Index) Follow(ctx context.Context, say func(error)) {
	for lost, back := false, false; ctx.Err() == nil; { // lost until everything was loaded again
		var err error
		if lost {
			err = x.load(ctx, back)
			lost = err != nil
		} else {
			err = x.store.Follow(ctx, root, x.Revision(), func(b Batch) {
				x.apply(b)
				x.store.feed.tell(b.Events)
			})
			back = errors.Is(err, kv.ErrWentBack)
			lost = back || errors.Is(err, ErrCompacted)
		}
		if err != nil && ctx.Err() == nil {
			say(fmt.Errorf("cannot follow the store: %w", err))
			Pause(ctx, Jitter(followPause)) // so that not all replicas come back at once
		}
	}
}

func (x *Index) apply(b Batch) {
	x.writing.Lock()
	defer x.writing.Unlock()
	now := x.snapshot.Load()
	d := &draft{index: x, change: newTally(), next: &snapshot{
		nodes: now.nodes.Clone(), clusters: now.clusters.Clone(),
		subscriptions: now.subscriptions.Clone(),
	}}
	d.apply(b.Events)
	x.publish(d, b.Revision)
}

// publish makes a draft the present snapshot, and reports its changes.
func (x *Index) publish(d *draft, revision int64) {
	d.next.revision = revision
	x.mu.Lock()
	if d.whole {
		x.tally = newTally()
	}
	sum(x.tally.states, d.change.states)
	sum(x.tally.used, d.change.used)
	x.snapshot.Store(d.next) // together: Used says which revision it counts
	sees := x.sees
	x.mu.Unlock()
	x.heard.Store(time.Now().UnixNano())
	for _, see := range sees {
		for _, c := range d.changed {
			(*see)(c.table, c.key)
		}
	}
}

// Subscribe calls see with the table ("nodes", "status", "clusters", "subscriptions") and the key
// of each change, after the index has it. see must be quick. cancel ends the subscription.
func (x *Index) Subscribe(see func(table, key string)) (cancel func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sees = append(slices.Clone(x.sees), &see)
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.sees = slices.DeleteFunc(slices.Clone(x.sees), func(s *func(table, key string)) bool {
			return s == &see
		})
	}
}

// Age returns the time since the last answer of the store.
func (x *Index) Age() time.Duration { return time.Since(time.Unix(0, x.heard.Load())) }

// Revision returns the revision of the index.
func (x *Index) Revision() int64 { return x.snapshot.Load().revision }
