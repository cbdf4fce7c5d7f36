// Package kv defines the database that the provider needs: keys with values, and revisions. Package
// store implements it with etcd, package storetest in memory.
package kv

import (
	"context"
	"errors"
	"time"
)

// Backend is a database of keys with values in which every change has a revision. Reads are
// linearizable.
type Backend interface {
	// Read returns the present values of at most MaxWrites keys at one revision. Keys that are
	// absent are left out.
	Read(ctx context.Context, keys ...string) (map[string]KV, int64, error)
	// Commit writes everything, if every condition holds, and returns its revision; ErrConflict if
	// one does not hold. After any other error but ErrTooLarge, also after ErrFull, it is unknown
	// whether it was written.
	Commit(ctx context.Context, conditions []Condition, writes []Write) (int64, error)
	// Scan returns up to limit values below a prefix whose keys are after a key, in their order, at
	// a revision; 0 is now.
	Scan(ctx context.Context, prefix, after string, limit int, at int64) (Page, error)
	// Keys returns up to limit of the present keys below a prefix and after a key, in their order, and
	// whether there are more.
	Keys(ctx context.Context, prefix, after string, limit int) (keys []string, more bool, err error)
	// Follow calls see with all changes below a prefix after a revision, in order, until ctx ends or
	// the connection breaks; ErrCompacted if they are not kept any more, ErrWentBack if the database
	// has not reached that revision. It also calls see without changes, at least every ten seconds, to
	// report that there were none up to a revision.
	Follow(ctx context.Context, prefix string, after int64, see func(Batch)) error
	// Lease returns a lease for keys that must end with this process: keys written with it vanish
	// if it is not renewed for longer than ttl.
	Lease(ctx context.Context, ttl time.Duration) (Lease, error)
	// Compact discards the changes before a revision, so that Follow and Scan cannot go back there.
	Compact(ctx context.Context, revision int64) error
	// Health returns the state of the database, without changing it.
	Health(ctx context.Context) (Health, error)
	Close() error
}

// The errors of a Backend.
var (
	// ErrConflict is returned if a condition of a commit did not hold: nothing was written.
	ErrConflict = errors.New("the stored rows have changed meanwhile")
	// ErrCompacted is returned for a revision that is not kept any more.
	ErrCompacted = errors.New("the changes since then are not kept any more")
	// ErrWentBack is returned by a database that is behind what it has reported: it was restored from
	// a backup while replicas run.
	ErrWentBack = errors.New("the store is behind what it has reported")
	// ErrTooLarge is returned for a commit of more than MaxWrites writes or conditions, or of more
	// than a bit over a megabyte: nothing was written.
	ErrTooLarge = errors.New("the change is too large for one transaction")
	// ErrNoLease is returned for a lease that has ended, or a write with it.
	ErrNoLease = errors.New("the lease has ended")
	// ErrFull is returned by a database that has reached its quota: reads and deletions work. etcd
	// returns it once for a write that it has made.
	ErrFull = errors.New("the store is full and refuses writes")
)

// MaxWrites limits the writes and the conditions of a commit, and the keys of a read (etcd
// --max-txn-ops). Store adds a condition of its own (HoldSchema).
const MaxWrites = 128

// MaxBytes limits the size of the writes of a commit: etcd accepts requests of 1.5 MiB
// (--max-request-bytes), with all overhead.
const MaxBytes = 1400 << 10

// Size returns the size of writes.
func Size(writes []Write) int {
	n := 0
	for _, w := range writes {
		n += len(w.Key) + len(w.Value)
	}
	return n
}

// KV is a key with its value and the revision of its last change.
type KV struct {
	Key      string
	Value    []byte
	Revision int64
}

// Condition requires that a key was last changed at a revision; 0 requires that it is absent. Empty
// requires that no key begins with Key.
type Condition struct {
	Key      string
	Revision int64
	Empty    bool
}

// Write is a new value of a key, or its deletion. Lease, if not 0, is the id of its lease.
type Write struct {
	Key    string
	Value  []byte
	Delete bool
	Lease  int64
}

// Page is a part of the rows below a prefix, read at Revision.
type Page struct {
	KVs      []KV
	More     bool
	Revision int64
}

// Event is one change. A deletion has only Key and Revision.
type Event struct {
	KV
	Deleted bool
}

// Batch holds changes in order. It completes all changes up to Revision.
type Batch struct {
	Events   []Event
	Revision int64
}

// Lease is renewed until it is closed or cannot be renewed any more.
type Lease interface {
	ID() int64
	// Done is closed when the lease has ended.
	Done() <-chan struct{}
	// Until returns the time, by this process' clock, before which no other process can have seen
	// the lease end.
	Until() time.Time
	Close() error
}

// Health describes the state of a database.
type Health struct {
	Revision int64
	// Size is the size of the largest member's file, InUse the part of a file with content, Quota
	// the max size of a file (0: unknown), in bytes.
	Size, InUse, Quota int64
	// Free is the free space on the disk of an embedded store, in bytes; -1: unknown.
	Free int64
	// Full reports that writes are refused, NoRoom that the disk is the reason, and Crowded that
	// only writes that grow rows are refused.
	Full, NoRoom, Crowded bool
}
