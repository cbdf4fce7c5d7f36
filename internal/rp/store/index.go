package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// seen is told each row of Seen.
	seen func(key string, value []byte)

	mu    sync.Mutex // of what follows
	tally tally
	sees  []*func(table, key string)

	writing sync.Mutex // of the one that makes snapshots
	anew    bool       // the next Load takes over nothing
}

// NewIndex returns an empty index; Load fills it.
func NewIndex(s *Store) *Index {
	x := &Index{store: s, packer: newPacker(), tally: newTally()}
	x.snapshot.Store(newSnapshot())
	return x
}

// Load reads all indexed rows. Rows that the index has already in the same revision are kept, so
// that loading again costs no second copy of them.
func (x *Index) Load(ctx context.Context) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	for {
		err := x.load(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrCompacted) { // while it was read: from the beginning then
			return fmt.Errorf("cannot load the index: %w", err)
		}
	}
}

func (x *Index) load(ctx context.Context) error {
	d := x.draft()
	d.anew = x.anew
	after, coming := "", x.page(ctx, "", firstPage, 0)
	for {
		read := <-coming
		if read.err != nil {
			return read.err
		}
		last := ""
		if read.More { // the next one is read while this one is parsed
			last = read.KVs[len(read.KVs)-1].Key
			coming = x.page(ctx, last, nextPage(read.Page), read.Revision)
		}
		d.merge(read.KVs, after, last)
		if after = last; last == "" {
			x.publish(d, read.Revision)
			x.store.feed.skip(x.anew)
			x.anew = false
			return nil
		}
	}
}

// scanned is a page of rows, or why it could not be read.
type scanned struct {
	Page
	err error
}

// page begins to read the indexed rows after a key at a revision. Whoever calls it waits for it.
func (x *Index) page(ctx context.Context, after string, size int, at int64) <-chan scanned {
	read := make(chan scanned, 1)
	go func() {
		page, err := x.store.Scan(ctx, indexed, after, size, at)
		read <- scanned{page, err}
	}()
	return read
}

// Follow keeps the index up to date until ctx ends: it goes on from the last change that it has
// seen, and loads again only what the store does not keep any more. It calls say at each break. It is
// the one follow of a process, from which Sync and Wait of all tables hear of changes after the
// index has them.
func (x *Index) Follow(ctx context.Context, say func(error)) {
	anew := false // all is to be loaded again, until that has succeeded
	for {
		var err error
		if !anew {
			err = x.follow(ctx)
			if ctx.Err() == nil && errors.Is(err, errWentBack) {
				x.forget()
			}
			anew = errors.Is(err, ErrCompacted) || errors.Is(err, errWentBack)
		}
		if ctx.Err() == nil && anew {
			if err != nil {
				say(fmt.Errorf("cannot follow the store, all is loaded again: %w", err))
			}
			if err = x.Load(ctx); err == nil {
				anew = false
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
		Pause(ctx, followPause/2+rand.N(followPause)) // replicas do not come back all at once
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

// forget has the next Load take over nothing: what is in the index may have the revisions of other
// rows by now.
func (x *Index) forget() {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.anew = true
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

// Age is how long ago the store was last heard of.
func (x *Index) Age() time.Duration { return time.Since(time.Unix(0, x.heard.Load())) }

// Revision is how far the index is.
func (x *Index) Revision() int64 { return x.snapshot.Load().revision }
