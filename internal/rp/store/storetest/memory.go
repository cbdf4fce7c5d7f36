// Package storetest has a database in memory, for tests and measurements, that can be made to fail.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// Memory is a Backend in memory, for tests and the simulation: one connection to a database that
// other connections share (Another). It behaves like etcd, and can be made to fail.
type Memory struct {
	db   *memoryDB
	knob knobs
}

// NewMemory returns a connection to a new database, which uses the clock of package time, so that
// testing/synctest can replace it.
func NewMemory() *Memory {
	return (&Memory{db: &memoryDB{
		records: btree.NewG(32, func(a, b *record) bool { return a.key < b.key }),
		leases:  map[int64]*memoryLease{}, changed: make(chan struct{}),
		revision: 1, // as an empty etcd
	}}).Another()
}

// Another returns another connection to the same database, like that of another replica. Each is
// paused, killed and made to fail separately.
func (m *Memory) Another() *Memory {
	return &Memory{db: m.db, knob: knobs{broken: make(chan struct{})}}
}

// memoryDB is the database behind connections.
type memoryDB struct {
	mu        sync.Mutex
	records   *btree.BTreeG[*record]
	log       []kv.Event // all changes since compacted, in order
	revision  int64
	compacted int64
	size      int64 // of all values that are kept, with their keys
	quota     int64
	full      bool // set by the last commit
	leases    map[int64]*memoryLease
	lastLease int64
	changed   chan struct{} // closed by the next change

	reads, commits atomic.Int64
}

// record is a key with its values, oldest first.
type record struct {
	key    string
	values []version
}

// version is the value of a key from a revision on, or its deletion.
type version struct {
	kv.KV
	deleted bool
	lease   int64
}

// at returns the value at a revision; false if there was none.
func (r *record) at(revision int64) (version, bool) {
	for _, v := range slices.Backward(r.values) {
		if v.Revision <= revision {
			return v, !v.deleted
		}
	}
	return version{}, false
}

// Read implements Backend.
func (m *Memory) Read(ctx context.Context, keys ...string) (map[string]kv.KV, int64, error) {
	if len(keys) > kv.MaxWrites {
		return nil, 0, kv.ErrTooLarge
	}
	if err := m.begin(ctx, Call{Op: "read", Keys: keys}); err != nil {
		return nil, 0, err
	}
	db := m.db
	db.reads.Add(1)
	db.mu.Lock()
	defer db.mu.Unlock()
	got := map[string]kv.KV{}
	for _, key := range keys {
		if v, ok := db.present(key); ok {
			got[key] = v.KV
		}
	}
	return got, db.revision, nil
}

// present returns the present value of a key; false if it is absent.
func (db *memoryDB) present(key string) (version, bool) {
	r, ok := db.records.Get(&record{key: key})
	if !ok {
		return version{}, false
	}
	return r.at(db.revision)
}

// Commit implements Backend.
func (m *Memory) Commit(
	ctx context.Context, conditions []kv.Condition, writes []kv.Write,
) (int64, error) {
	call := Call{Op: "commit", Writes: writes}
	if max(len(conditions), len(writes)) > kv.MaxWrites || kv.Size(writes) > kv.MaxBytes {
		return 0, kv.ErrTooLarge
	}
	if err := m.begin(ctx, call); err != nil {
		return 0, err
	}
	m.db.commits.Add(1)
	revision, err := m.db.commit(conditions, writes)
	if err != nil {
		return 0, err
	}
	return revision, m.knob.call(&m.knob.after, call)
}

func (db *memoryDB) commit(conditions []kv.Condition, writes []kv.Write) (int64, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, c := range conditions {
		v, there := db.present(c.Key)
		holds := there == (c.Revision != 0) && (!there || v.Revision == c.Revision)
		if c.Empty {
			holds = len(db.page(c.Key, "", 1, db.revision).KVs) == 0
		}
		if !holds {
			return 0, kv.ErrConflict
		}
	}
	if err := db.check(writes); err != nil {
		db.full = errors.Is(err, kv.ErrFull)
		return 0, err
	}
	db.full = false
	db.write(writes)
	return db.revision, nil
}

// check rejects writes that etcd rejects.
func (db *memoryDB) check(writes []kv.Write) error {
	seen := map[string]bool{}
	grown := int64(0)
	for _, w := range writes {
		if seen[w.Key] {
			return fmt.Errorf("internal error: %s is written twice in one transaction", w.Key)
		}
		seen[w.Key] = true
		if w.Lease != 0 && db.leases[w.Lease] == nil {
			return kv.ErrNoLease
		}
		if !w.Delete {
			grown += int64(len(w.Key) + len(w.Value))
		}
	}
	if db.quota != 0 && grown > 0 && db.size+grown > db.quota {
		return kv.ErrFull
	}
	return nil
}

// write makes changes, at one new revision. It ignores deletions of absent keys.
func (db *memoryDB) write(writes []kv.Write) {
	next := db.revision + 1
	var events []kv.Event
	for _, w := range writes {
		if _, there := db.present(w.Key); w.Delete && !there {
			continue
		}
		v := version{KV: kv.KV{Key: w.Key, Revision: next}, deleted: w.Delete}
		if !w.Delete {
			v.Value, v.lease = bytes.Clone(w.Value), w.Lease
		}
		db.keep(v)
		events = append(events, kv.Event{KV: v.KV, Deleted: v.deleted})
	}
	if len(events) == 0 {
		return
	}
	db.revision = next
	db.log = append(db.log, events...)
	close(db.changed)
	db.changed = make(chan struct{})
}

// keep adds a value to those of its key.
func (db *memoryDB) keep(v version) {
	r, ok := db.records.Get(&record{key: v.Key})
	if !ok {
		r = &record{key: v.Key}
		db.records.ReplaceOrInsert(r)
	}
	r.values = append(r.values, v)
	db.size += int64(len(v.Key) + len(v.Value))
}

// Scan implements Backend.
func (m *Memory) Scan(
	ctx context.Context, prefix, after string, limit int, at int64,
) (kv.Page, error) {
	return m.scan(ctx, "scan", prefix, after, limit, at)
}

func (m *Memory) scan(
	ctx context.Context, op, prefix, after string, limit int, at int64,
) (kv.Page, error) {
	if err := m.begin(ctx, Call{Op: op, Keys: []string{prefix}}); err != nil {
		return kv.Page{}, err
	}
	db := m.db
	db.reads.Add(1)
	db.mu.Lock()
	defer db.mu.Unlock()
	if at == 0 {
		at = db.revision
	}
	if at < db.compacted {
		return kv.Page{}, kv.ErrCompacted
	}
	return db.page(prefix, after, limit, at), nil
}

// page returns up to limit values below a prefix whose keys are after a key, at a revision.
func (db *memoryDB) page(prefix, after string, limit int, at int64) kv.Page {
	page := kv.Page{Revision: at}
	db.records.AscendGreaterOrEqual(&record{key: max(prefix, after)}, func(r *record) bool {
		if !strings.HasPrefix(r.key, prefix) {
			return false
		}
		if v, ok := r.at(at); ok && r.key > after {
			page.More = len(page.KVs) == limit
			if !page.More {
				page.KVs = append(page.KVs, v.KV)
			}
		}
		return !page.More
	})
	return page
}

// Keys implements kv.Backend.
func (m *Memory) Keys(
	ctx context.Context, prefix, after string, limit int,
) (keys []string, more bool, err error) {
	page, err := m.scan(ctx, "keys", prefix, after, limit, 0)
	for _, kv := range page.KVs {
		keys = append(keys, kv.Key)
	}
	return keys, page.More, err
}

// progress is the time between two reports of Follow without changes.
const progress = 5 * time.Second

// Follow implements Backend.
func (m *Memory) Follow(ctx context.Context, prefix string, after int64, see func(kv.Batch)) error {
	if err := m.begin(ctx, Call{Op: "follow", Keys: []string{prefix}}); err != nil {
		return err
	}
	broken := m.knob.untilBroken()
	for {
		batch, changed, err := m.db.since(prefix, after)
		if err != nil {
			return err
		}
		see(batch)
		after = batch.Revision
		select {
		case <-ctx.Done():
		case <-broken:
		case <-changed:
		case <-time.After(progress):
		}
		if err := m.begin(ctx, Call{Op: "changes", Keys: []string{prefix}}); err != nil {
			return err
		}
		select {
		case <-broken:
			return ErrBroken
		default:
		}
	}
}

var ErrBroken = errors.New("the connection to the store is broken")

// since returns the changes below a prefix after a revision, and a channel that the next change
// closes.
func (db *memoryDB) since(prefix string, after int64) (kv.Batch, <-chan struct{}, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if after+1 < db.compacted {
		return kv.Batch{}, nil, kv.ErrCompacted
	}
	if after > db.revision {
		return kv.Batch{}, nil, kv.ErrWentBack
	}
	batch := kv.Batch{Revision: db.revision}
	first, _ := slices.BinarySearchFunc(db.log, after+1, func(e kv.Event, revision int64) int {
		return int(e.Revision - revision)
	})
	for _, e := range db.log[first:] {
		if strings.HasPrefix(e.Key, prefix) {
			batch.Events = append(batch.Events, e)
		}
	}
	return batch, db.changed, nil
}

// Compact implements Backend.
func (m *Memory) Compact(ctx context.Context, revision int64) error {
	if err := m.begin(ctx, Call{Op: "compact"}); err != nil {
		return err
	}
	db := m.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if revision <= db.compacted {
		return kv.ErrCompacted
	}
	db.compacted = revision
	db.log = slices.DeleteFunc(db.log, func(e kv.Event) bool { return e.Revision < revision })
	var gone []*record
	db.records.Ascend(func(r *record) bool {
		for _, v := range r.forget(revision) {
			db.size -= int64(len(v.Key) + len(v.Value))
		}
		if len(r.values) == 0 {
			gone = append(gone, r)
		}
		return true
	})
	for _, r := range gone {
		db.records.Delete(r)
	}
	return nil
}

// forget drops the values that were replaced or deleted by a revision, and returns them.
func (r *record) forget(revision int64) (gone []version) {
	all, n := r.values, 0
	for n < len(all)-1 && all[n+1].Revision <= revision {
		n++
	}
	if first := all[n]; first.deleted && first.Revision <= revision {
		n++
	}
	r.values = all[n:]
	return all[:n]
}
