package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// CompactEvery is the time between compactions of the store, as kube-apiserver does with its own.
const CompactEvery = 5 * time.Minute

// KeepCompacted has the store forget old changes until ctx ends, so that it does not grow for ever:
// every CompactEvery it compacts the store to its revision one interval ago. All replicas do so,
// each at its own times, and changes are kept for one to two of them. say receives each error; it
// is tried again.
func (s *Store) KeepCompacted(ctx context.Context, say func(error)) {
	for seen := int64(0); ctx.Err() == nil; Pause(ctx, CompactEvery) {
		_, now, err := s.Read(ctx)
		if err == nil && seen != 0 {
			err = s.Compact(ctx, seen)
		}
		if err != nil && !errors.Is(err, ErrCompacted) && ctx.Err() == nil {
			say(fmt.Errorf("cannot compact the store: %w", err))
		}
		seen = now
	}
}
