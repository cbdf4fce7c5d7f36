package store

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Row is a value with the revision of its last change; revision 0 is an absent row.
type Row[T any] struct {
	Key      string
	Value    T
	Revision int64
}

// Exists reports whether the row exists.
func (r Row[T]) Exists() bool { return r.Revision != 0 }

// Table is one kind of rows: JSON below a prefix.
type Table[T any] struct {
	store  *Store
	prefix string
	packed bool // stored with s2
}

// Key returns the key of a row in the database, to read it ahead (Update).
func (t Table[T]) Key(key string) string { return t.prefix + key }

// Get reads a row outside a view.
func (t Table[T]) Get(ctx context.Context, key string) (Row[T], error) {
	got, _, err := t.store.Read(ctx, t.prefix+key)
	if err != nil {
		return Row[T]{}, fmt.Errorf("cannot read %s: %w", t.prefix+key, err)
	}
	return t.decode(key, got[t.prefix+key])
}

// In reads a row within a view: the change depends on it.
func (t Table[T]) In(v *View, key string) (Row[T], error) {
	kv, err := v.get(t.prefix + key)
	if err != nil {
		return Row[T]{}, err
	}
	return t.decode(key, kv)
}

// Row is In for a change that needs the row: if it cannot be read, the change fails (View.Fail) and
// Row returns an absent one.
func (t Table[T]) Row(v *View, key string) Row[T] {
	row, err := t.In(v, key)
	if err != nil {
		v.Fail(err)
		return Row[T]{Key: key}
	}
	return row
}

// IsAt reports whether a row is still at a revision. The change depends on it, and fails if the row
// cannot be read.
func (t Table[T]) IsAt(v *View, key string, revision int64) bool {
	kv, err := v.get(t.prefix + key)
	v.Fail(err)
	return err == nil && revision > 0 && kv.Revision == revision
}

// None reports whether there are no rows below a prefix, within a view. The change depends on it,
// and fails if they cannot be read.
func (t Table[T]) None(v *View, prefix string) bool {
	keys, err := t.First(v.ctx, prefix, 1)
	v.Fail(err)
	v.Fence(Condition{Key: t.prefix + prefix, Empty: true})
	return len(keys) == 0
}

// Put writes a row within a view. It preserves members that a newer program has added to the row.
func (t Table[T]) Put(v *View, key string, value T) error {
	kv, err := v.get(t.prefix + key)
	if err != nil {
		return err
	}
	var before []byte
	if _, own := any(value).(writer); !own {
		if before, err = t.open(kv.Value); err != nil {
			return err
		}
	}
	return t.write(v, key, before, value, 0)
}

// Replace is Put of the next value of a row that had another value, unless the two are equal.
func (t Table[T]) Replace(v *View, key string, was, next T) error {
	if reflect.DeepEqual(next, was) {
		return nil
	}
	return t.Put(v, key, next)
}

// Set writes a row within a view, whatever its present value: the change does not depend on it.
func (t Table[T]) Set(v *View, key string, value T) error { return t.write(v, key, nil, value, 0) }

// Lease writes a row that ends with a lease.
func (t Table[T]) Lease(v *View, key string, value T, lease Lease) error {
	return t.write(v, key, nil, value, lease.ID())
}

func (t Table[T]) write(v *View, key string, before []byte, value T, lease int64) error {
	data, err := encode(before, value)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode %s: %w", t.prefix+key, err)
	}
	if t.packed {
		data = pack(data)
	}
	v.write(Write{Key: t.prefix + key, Value: data, Lease: lease})
	return nil
}

// Delete deletes a row within a view, if it exists. The change depends on it only if it was read.
func (t Table[T]) Delete(v *View, key string) { v.write(Write{Key: t.prefix + key, Delete: true}) }

// List reads all rows whose keys begin with a prefix, in the order of their keys, at one revision.
func (t Table[T]) List(ctx context.Context, prefix string) ([]Row[T], int64, error) {
	var rows []Row[T]
	at, err := t.each(ctx, prefix, func(r Row[T], err error) error {
		rows = append(rows, r)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return rows, at, nil
}

// each calls see with all rows below a prefix at one revision, which it returns. err of see is the
// reason that a row cannot be read.
func (t Table[T]) each(
	ctx context.Context, prefix string, see func(r Row[T], err error) error,
) (int64, error) {
	return t.store.pages(ctx, t.prefix+prefix, func(kvs []KV) error {
		for _, kv := range kvs {
			if err := see(t.decode(strings.TrimPrefix(kv.Key, t.prefix), kv)); err != nil {
				return err
			}
		}
		return nil
	})
}

// pages calls see with the rows below a prefix of keys, a page at a time and all at one revision,
// which it returns.
func (s *Store) pages(ctx context.Context, prefix string, see func([]KV) error) (int64, error) {
	after, at, size := "", int64(0), firstPage
	for {
		page, err := s.Scan(ctx, prefix, after, size, at)
		if err == nil {
			err = see(page.KVs)
		}
		if err != nil {
			return 0, fmt.Errorf("cannot list %s: %w", prefix, err)
		}
		if !page.More {
			return page.Revision, nil
		}
		after, at, size = page.KVs[len(page.KVs)-1].Key, page.Revision, nextPage(page)
	}
}

// Keys returns the keys below a prefix.
func (t Table[T]) Keys(ctx context.Context, prefix string) ([]string, error) {
	return t.First(ctx, prefix, math.MaxInt)
}

// First returns the first keys below a prefix, up to a limit. It reads them in pages, without
// values.
func (t Table[T]) First(ctx context.Context, prefix string, limit int) (all []string, err error) {
	for after, more := "", true; more && len(all) < limit; {
		var keys []string
		page := min(maxPage, limit-len(all))
		if keys, more, err = t.store.Keys(ctx, t.prefix+prefix, after, page); err != nil {
			return nil, fmt.Errorf("cannot list the keys of %s: %w", t.prefix+prefix, err)
		}
		for _, after = range keys {
			all = append(all, strings.TrimPrefix(after, t.prefix))
		}
	}
	return all, nil
}

// Limits of the rows of one request. For each request etcd goes through the keys of all remaining
// rows to count them, so small pages of many rows take long; large pages of large rows fill the
// memory.
const firstPage, maxPage, pageBytes = 256, 8192, 4 << 20

// nextPage returns the number of rows to read after a page: as many as have pageBytes at its mean
// size, and at most eight times its number.
func nextPage(p Page) int {
	size := 1
	for _, kv := range p.KVs {
		size += len(kv.Value)
	}
	return max(1, min(pageBytes*len(p.KVs)/size, 8*len(p.KVs), maxPage))
}

// Sync calls see with every row below a prefix that ends with a slash, or of the table, and then
// with each change that the process' index gets (Index.Follow), until ctx ends. A deleted row has
// revision 0. While the first read fails it calls say and retries; after it, it calls ready, which
// may be nil, once. If changes are not kept any more, it reads everything again and reports
// differences and deletions; after the store has gone back, it reports every row. Rows that cannot
// be read are left out.
func (t Table[T]) Sync(
	ctx context.Context, prefix string, see func(Row[T]), ready func(), say func(error),
) {
	l, leave := t.store.feed.listen(t.prefix + prefix)
	defer leave()
	known := map[string]int64{}
	at := t.resync(ctx, prefix, known, see, say)
	if ready != nil && ctx.Err() == nil {
		ready()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.told:
		}
		events, missed, back := t.store.feed.take(l)
		if back {
			for key := range known { // its revision may belong to another value now
				known[key] = uncommitted
			}
		}
		if missed {
			at = t.resync(ctx, prefix, known, see, func(error) {})
		}
		for _, e := range events {
			key := strings.TrimPrefix(e.Key, t.prefix)
			switch r, err := t.decode(key, e.KV); {
			case e.Revision <= at: // the rows were read since
			case e.Deleted:
				delete(known, key)
				see(Row[T]{Key: key})
			default:
				if known[key] = e.Revision; err == nil {
					see(r)
				}
			}
		}
	}
}

// followPause is the pause after the connection broke.
const followPause = time.Second

// Pause waits, at most until ctx ends, and reports whether ctx has not ended.
func Pause(ctx context.Context, d time.Duration) bool { return wait.Sleep(ctx, d) }

// Jitter returns a random time from half a mean to one and a half.
func Jitter(mean time.Duration) time.Duration { return wait.Jitter(mean) }

// resync calls readAll until it succeeds or ctx ends, and say with each error.
func (t Table[T]) resync(
	ctx context.Context, prefix string, known map[string]int64, see func(Row[T]), say func(error),
) (at int64) {
	at, err := t.readAll(ctx, prefix, known, see)
	for err != nil && ctx.Err() == nil {
		say(err)
		Pause(ctx, Jitter(followPause))
		at, err = t.readAll(ctx, prefix, known, see)
	}
	return at
}

// readAll reads everything below a prefix and calls see with differences from known.
func (t Table[T]) readAll(
	ctx context.Context, prefix string, known map[string]int64, see func(Row[T]),
) (int64, error) {
	there := map[string]bool{}
	at, err := t.each(ctx, prefix, func(r Row[T], err error) error {
		there[r.Key] = true
		if known[r.Key] != r.Revision {
			known[r.Key] = r.Revision
			if err == nil {
				see(r)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for key := range known {
		if !there[key] {
			delete(known, key)
			see(Row[T]{Key: key})
		}
	}
	return at, nil
}

func (t Table[T]) decode(key string, kv KV) (Row[T], error) {
	r := Row[T]{Key: key, Revision: kv.Revision}
	if kv.Revision == 0 {
		return r, nil
	}
	data, err := t.open(kv.Value)
	if err == nil {
		err = decodeInto(data, &r.Value)
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the stored row %s: %w", t.prefix+key, err)
	}
	return r, nil
}

// open returns the JSON of a stored value.
func (t Table[T]) open(stored []byte) ([]byte, error) {
	if !t.packed || len(stored) == 0 {
		return stored, nil
	}
	return unpack(stored)
}
