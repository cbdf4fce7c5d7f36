package store

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// reserve is the free space on its disk, in bytes, that an embedded etcd keeps: it ends its process
// when it cannot write, and takes the next file of its log (64 MiB) and more room for its database
// (16 MiB) when it needs them. What deletions and compaction need is in it.
const reserve = 192 << 20

// ErrNoRoom is ErrFull because of the disk. Nothing is to be done but to make room.
var ErrNoRoom = fmt.Errorf("the store's disk has less than %d MiB left: %w", reserve>>20, ErrFull)

// room is ErrNoRoom while the disk of an embedded etcd is nearly full.
func (e *Etcd) room() error {
	if e.free == nil {
		return nil
	}
	if free, err := e.free(); err == nil && free < reserve {
		return ErrNoRoom
	}
	return nil
}

// left returns how much of the disk of an embedded etcd is free, in bytes; -1 if that is not known.
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

// freeIn returns a function that returns how much of the disk of a directory is free.
func freeIn(dir string) func() (uint64, error) {
	return func() (uint64, error) {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		return s.Bavail * uint64(s.Bsize), err
	}
}

// ErrCrowded is ErrFull before the quota is reached: the last tenth of it is kept for deletions,
// revocations and what else does not make rows larger, without which no operator could make room.
var ErrCrowded = fmt.Errorf("nine tenths of its quota are in use: %w", ErrFull)

// spared limits how much larger one change may make rows in a store that is crowded, in bytes: a
// credential that is revoked or consumed, an operation that ends, a condition of a node.
const spared = 512

// Health tells how the database is. From nine tenths of its quota in use on changes that make rows
// larger are refused until less is in use. Free space within its file counts as free, since etcd
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

// refusal returns ErrCrowded if the store has no room for what a view writes.
func (v *View) refusal() error {
	if v.store.crowded.Load() && v.growth() > spared {
		return ErrCrowded
	}
	return nil
}

// growth returns by how many bytes a view makes rows larger. Rows that it has not read count as
// new, and those that end with a process do not count.
func (v *View) growth() int {
	grown := 0
	for key, w := range v.writes {
		if w.Lease == 0 {
			grown += len(w.Value) - len(v.read[key].Value)
		}
	}
	return grown
}
