package store

import (
	"context"
	"fmt"
)

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
