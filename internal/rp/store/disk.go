package store

import (
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
