package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Index is a replica's copy of the indexed tables, kept by following the store. Polls and lists are
// answered from it, so that they cost the store nothing; it is a little behind the store. Who reads
// it takes no lock: each batch of changes makes a new snapshot, which shares with the one before
// what has not changed.
type Index struct {
	store    *Store
	packer   packer
	snapshot atomic.Pointer[snapshot]
	// heard is when the store was last heard of, in Unix nanoseconds.
	heard atomic.Int64
	// seen receives each row of Seen.
	seen func(key string, value []byte)

	mu    sync.Mutex // of what follows
	tally tally
	sees  []*func(table, key string)

	writing sync.Mutex // of the one that makes snapshots
}

// NewIndex returns an empty index; Load fills it.
func NewIndex(s *Store) *Index {
	x := &Index{store: s, packer: newPacker(), tally: newTally()}
	x.snapshot.Store(newSnapshot())
	return x
}

// Load reads all indexed rows.
func (x *Index) Load(ctx context.Context) error { return x.load(ctx, false) }

// load reads all rows, and tells of all that there are and were: it is not known what has changed.
// back tells that the store has gone back.
func (x *Index) load(ctx context.Context, back bool) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	for {
		d := &draft{index: x, whole: true, next: newSnapshot(), change: newTally()}
		d.noteAll(x.snapshot.Load())
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
		case !errors.Is(err, ErrCompacted): // else from the beginning
			return fmt.Errorf("cannot load the index: %w", err)
		}
	}
}

// Follow keeps the index up to date until ctx ends: it goes on from the last change that it has
// seen, and loads again only what the store does not keep any more. It calls say at each break. It
// is the one follow of a process, from which Sync and Wait of all tables hear of changes after the
// index has them.
func (x *Index) Follow(ctx context.Context, say func(error)) {
	lost, back := false, false // all is to be loaded again, until that has succeeded
	for {
		var err error
		if !lost {
			err = x.follow(ctx)
			back = errors.Is(err, errWentBack)
			lost = back || errors.Is(err, ErrCompacted)
		}
		if ctx.Err() == nil && lost {
			if err != nil {
				say(fmt.Errorf("cannot follow the store, all is loaded again: %w", err))
			}
			if err = x.load(ctx, back); err == nil {
				lost = false
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the connection has ended")
		}
		say(fmt.Errorf("cannot follow the store: %w", err))
		Pause(ctx, Jitter(followPause)) // replicas do not come back all at once
	}
}

// errWentBack is a store that is at an earlier revision than it was: it was restored from a backup
// while replicas run.
var errWentBack = errors.New("the store is behind what it has told")

// follow applies all changes of the store and passes them on, until the connection breaks, or the
// store has gone back. A member of it that is behind the others for a moment is not taken for that.
func (x *Index) follow(ctx context.Context) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := x.store.Follow(inner, root, x.Revision(), func(b Batch) {
		if inner.Err() != nil {
			return
		}
		if b.Revision >= x.Revision() {
			x.apply(b)
			x.store.feed.tell(b.Events)
			return
		}
		_, now, err := x.store.Read(inner, root)
		if err == nil && now < x.Revision() {
			cancel(errWentBack)
		}
	})
	if errors.Is(context.Cause(inner), errWentBack) {
		return errWentBack
	}
	return err
}

// apply makes a snapshot with changes.
func (x *Index) apply(b Batch) {
	x.writing.Lock()
	defer x.writing.Unlock()
	own := make([]Event, 0, len(b.Events))
	for _, e := range b.Events {
		if strings.HasPrefix(e.Key, indexed) {
			own = append(own, e)
		}
	}
	if len(own) == 0 {
		next := *x.snapshot.Load()
		next.revision = b.Revision
		x.snapshot.Store(&next)
		x.heard.Store(time.Now().UnixNano())
		return
	}
	d := x.draft()
	d.apply(own)
	x.publish(d, b.Revision)
}

// publish makes a draft the snapshot, and tells of its changes.
func (x *Index) publish(d *draft, revision int64) {
	d.next.revision = revision
	x.mu.Lock()
	if d.whole {
		x.tally = newTally()
	}
	x.tally.add(d.change) // before the snapshot: Used counts at least what it has
	sees := x.sees
	x.mu.Unlock()
	x.snapshot.Store(d.next)
	x.heard.Store(time.Now().UnixNano())
	for _, see := range sees {
		for _, c := range d.changed {
			(*see)(c.table, c.key)
		}
	}
}

// Subscribe has see called with the table ("nodes", "status", "clusters", "subscriptions") and the
// key of each change, after the index has it. see must be quick. cancel ends it.
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

// Age returns the time since the store was last heard of.
func (x *Index) Age() time.Duration { return time.Since(time.Unix(0, x.heard.Load())) }

// Revision returns the revision of the index.
func (x *Index) Revision() int64 { return x.snapshot.Load().revision }
