// Package kv is what the provider needs of a database: keys with values, and revisions. Package
// store implements it by etcd, package storetest in memory.
package kv

import (
	"context"
	"errors"
	"time"
)

// Backend holds what the provider needs of a database: keys with values, in which every change has
// a revision. Reads are linearizable.
type Backend interface {
	// Read returns the present values of at most MaxWrites keys at one revision. Keys that are
	// absent are left out.
	Read(ctx context.Context, keys ...string) (map[string]KV, int64, error)
	// Commit writes everything, if every condition holds, and returns its revision; ErrConflict if
	// one does not hold. After any other error but ErrTooLarge it is open whether it was written;
	// also after ErrFull.
	Commit(ctx context.Context, conditions []Condition, writes []Write) (int64, error)
	// Scan returns up to limit values below a prefix whose keys are after a key, in their order, at
	// a revision; 0 is now.
	Scan(ctx context.Context, prefix, after string, limit int, at int64) (Page, error)
	// Keys returns up to limit of the present keys below a prefix and after a key, in their order, and
	// whether there are more.
	Keys(ctx context.Context, prefix, after string, limit int) (keys []string, more bool, err error)
	// Follow calls see with all changes below a prefix after a revision, in their order, until ctx
	// ends or it breaks; ErrCompacted if they are not kept any more. see is also called without
	// changes, at least every ten seconds, to tell that there were none up to a revision.
	Follow(ctx context.Context, prefix string, after int64, see func(Batch)) error
	// Lease is for keys that are to end with this process: those written with it vanish when it
	// is not kept for longer than ttl.
	Lease(ctx context.Context, ttl time.Duration) (Lease, error)
	// Compact forgets the changes before a revision, so that Follow and Scan cannot go back there.
	Compact(ctx context.Context, revision int64) error
	// Health tells how the database is, without changing it.
	Health(ctx context.Context) (Health, error)
	Close() error
}

// The errors of a Backend.
var (
	// ErrConflict is a commit of which a condition did not hold: nothing was written.
	ErrConflict = errors.New("the stored rows have changed meanwhile")
	// ErrCompacted is a revision that is not kept any more.
	ErrCompacted = errors.New("the changes since then are not kept any more")
	// ErrTooLarge is a commit of more than MaxWrites writes or conditions, or of more than a bit
	// over a megabyte: nothing was written.
	ErrTooLarge = errors.New("the change is too large for one transaction")
	// ErrNoLease is a lease that has ended, or a write with it.
	ErrNoLease = errors.New("the lease has ended")
	// ErrFull is a database that has reached its quota: reads and deletions work. etcd says so once
	// of what it has written.
	ErrFull = errors.New("the store is full and refuses writes")
)

// MaxWrites limits the writes and the conditions of a commit, and what is read (etcd
// --max-txn-ops). Store adds a condition of its own (HoldSchema).
const MaxWrites = 128

// MaxBytes limits the size of the writes of a commit: etcd takes requests of 1.5 MiB
// (--max-request-bytes), with everything around them.
const MaxBytes = 1400 << 10

// Size returns the size of writes.
func Size(writes []Write) int {
	n := 0
	for _, w := range writes {
		n += len(w.Key) + len(w.Value)
	}
	return n
}

// KV is a key with its value. Revision is that of its last change.
type KV struct {
	Key      string
	Value    []byte
	Revision int64
}

// Condition is that a key was last changed at a revision; 0 is that it is absent. With Empty it is
// that there is nothing below the key, which is a prefix.
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

// Page is a part of what is below a prefix. Revision is what it was read at.
type Page struct {
	KVs      []KV
	More     bool
	Revision int64
}

// Event is one change. Only Key and Revision are set of what was deleted.
type Event struct {
	KV
	Deleted bool
}

// Batch is changes in their order; all changes up to Revision have been told with it.
type Batch struct {
	Events   []Event
	Revision int64
}

// Lease is kept until it is closed or cannot be kept any more.
type Lease interface {
	ID() int64
	// Done is closed when the lease has ended.
	Done() <-chan struct{}
	// Until returns the time before which no other process can have seen it end, by this process'
	// clock.
	Until() time.Time
	Close() error
}

// Health describes the state of a database.
type Health struct {
	Revision int64
	// Size is that of the largest member's file, InUse how much of a file has content, Quota the
	// most that a file may have (0: not known), in bytes.
	Size, InUse, Quota int64
	// Free is the free space on the disk of an embedded store, in bytes; -1: not known.
	Free int64
	// Full tells that writes are refused, NoRoom that they are because of the disk, and Crowded that
	// only those are that make rows larger.
	Full, NoRoom, Crowded bool
}
