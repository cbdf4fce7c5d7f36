package store

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// reserve is the free space on disk, in bytes, that an embedded etcd keeps: it ends its process
// when it cannot write, and needs room for the next file of its log (64 MiB) and for its database
// (16 MiB). The reserve covers deletions and compaction.
const reserve = 192 << 20

// ErrNoRoom is ErrFull because of the disk. Only free space helps.
var ErrNoRoom = fmt.Errorf("the store's disk has less than %d MiB left: %w", reserve>>20, ErrFull)

// room returns ErrNoRoom while the disk of an embedded etcd is nearly full.
func (e *Etcd) room() error {
	if e.free == nil {
		return nil
	}
	if free, err := e.free(); err == nil && free < reserve {
		return ErrNoRoom
	}
	return nil
}

// left returns the free space on the disk of an embedded etcd, in bytes; -1 if it is unknown.
func (e *Etcd) left() int64 {
	if e.free == nil {
		return -1
	}
	free, err := e.free()
	if err != nil || free > math.MaxInt64 {
		return -1
	}
	return int64(free)
}

// freeIn returns a function that returns the free space on the disk of a directory.
func freeIn(dir string) func() (uint64, error) {
	return func() (uint64, error) {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		return s.Bavail * uint64(s.Bsize), err
	}
}

// ErrCrowded is ErrFull before the quota is reached: the last tenth is kept for deletions,
// revocations and other writes that grow no row, without which no operator could make room.
var ErrCrowded = fmt.Errorf("nine tenths of its quota are in use: %w", ErrFull)

// spared limits, in bytes, how much one change may grow rows in a crowded store: to revoke or
// consume a credential, end an operation, or set a condition of a node.
const spared = 512

// Health returns the state of the database. Once nine tenths of its quota are in use, changes that
// grow rows are refused until less is in use. Free space within its file counts as free, since etcd
// writes there first.
func (s *Store) Health(ctx context.Context) (Health, error) {
	h, err := s.Backend.Health(ctx)
	if err != nil {
		return h, err
	}
	h.Crowded = h.InUse > h.Quota-h.Quota/10 && h.Quota > 0
	s.crowded.Store(h.Crowded)
	return h, nil
}

// refusal returns ErrCrowded if the store has no room for the writes of a view.
func (v *View) refusal() error {
	if v.store.crowded.Load() && v.growth() > spared {
		return ErrCrowded
	}
	return nil
}

// growth returns the bytes by which a view grows rows. Rows that it has not read count as new; rows
// with a lease do not count.
func (v *View) growth() int {
	grown := 0
	for key, w := range v.writes {
		if w.Lease == 0 {
			grown += len(w.Value) - len(v.read[key].Value)
		}
	}
	return grown
}
