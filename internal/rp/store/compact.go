package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Compactor has the store forget old changes, so that it does not grow for ever: every Interval
// some replica compacts it to where it was an Interval ago. Changes are therefore kept for one to
// two Intervals. Replicas need not agree on the time: who finds that nobody has compacted since its
// last round does so, and tells by a row.
type Compactor struct {
	// Interval is how often; default CompactEvery.
	Interval time.Duration
	// Failed is told what went wrong; it is tried again an Interval later.
	Failed func(error)
}

// CompactEvery is how often the store is compacted, as kube-apiserver does with its own.
const CompactEvery = 5 * time.Minute

// compactionRow is where replicas tell each other of it.
const compactionRow = "compaction"

// compaction is that row.
type compaction struct {
	// Revision is what the store was compacted to.
	Revision int64 `json:"revision"`
}

// moment is what a replica has seen of the store.
type moment struct {
	row   int64 // the revision of the compaction row
	store int64
}

// Run compacts until ctx ends.
func (c Compactor) Run(ctx context.Context, s *Store) {
	if c.Interval == 0 {
		c.Interval = CompactEvery
	}
	seen, err := c.observe(ctx, s)
	for {
		if err != nil && ctx.Err() == nil && c.Failed != nil {
			c.Failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.Interval):
		}
		if seen.store == 0 { // the store did not answer when this began
			seen, err = c.observe(ctx, s)
			continue
		}
		seen, err = c.round(ctx, s, seen)
	}
}

// observe sees how far the store is.
func (c Compactor) observe(ctx context.Context, s *Store) (moment, error) {
	key := s.Meta.Key(compactionRow)
	got, now, err := s.Read(ctx, key)
	if err != nil {
		return moment{}, fmt.Errorf("cannot read %s: %w", key, err)
	}
	return moment{got[key].Revision, now}, nil
}

// round compacts to where the store was when it was seen last, unless another replica has compacted
// since, and returns what is seen now. A store that is full takes no row, but is compacted all the
// same: nothing else makes room in it.
func (c Compactor) round(ctx context.Context, s *Store, seen moment) (moment, error) {
	key := s.Meta.Key(compactionRow)
	row, err := json.Marshal(compaction{seen.store})
	if err != nil {
		return seen, fmt.Errorf("internal error: %w", err)
	}
	at, err := s.Commit(ctx, []Condition{{Key: key, Revision: seen.row}},
		[]Write{{Key: key, Value: row}})
	next := moment{at, at}
	switch {
	case errors.Is(err, ErrConflict):
		next, err := c.observe(ctx, s)
		if err != nil {
			return seen, err
		}
		return next, nil
	case errors.Is(err, ErrFull):
		if next, err = c.observe(ctx, s); err != nil {
			return seen, err
		}
	case err != nil:
		return seen, fmt.Errorf("cannot write %s: %w", key, err)
	}
	if err := s.Compact(ctx, seen.store); err != nil && !errors.Is(err, ErrCompacted) {
		return next, fmt.Errorf("cannot compact the store to revision %d: %w", seen.store, err)
	}
	return next, nil
}
