package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// tombstoneAge is how long a deleted node is remembered, operationAge how long an operation.
	tombstoneAge = 30 * 24 * time.Hour
	operationAge = 7 * 24 * time.Hour
	// collectInterval is the mean time between two collections of a replica.
	collectInterval = 6 * time.Hour
)

// collect deletes, now and then, what nobody asks for any more.
func (s *service) collect(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(collectInterval/2 + rand.N(collectInterval)):
		}
		if err := collectOld(ctx, s.store, time.Now()); err != nil && ctx.Err() == nil {
			s.say("old rows are not deleted yet")(err)
		}
	}
}

// collectOld deletes old tombstones and operations.
func collectOld(ctx context.Context, st *store.Store, now time.Time) error {
	stones, _, err := st.Tombstones.List(ctx, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, row := range stones {
		errs = append(errs, forget(ctx, st, row, now.Add(-tombstoneAge)))
	}
	operations, _, err := st.Operations.List(ctx, "")
	for _, row := range operations {
		if now.Sub(row.Value.Started) > operationAge {
			errs = append(errs, drop(ctx, st, st.Operations, row.Key, row.Revision))
		}
	}
	return errors.Join(append(errs, err)...)
}

// forget deletes the tombstones of a name that are older than a time, unless the row has changed.
func forget(
	ctx context.Context, st *store.Store, seen store.Row[flexnode.Tombstones], since time.Time,
) error {
	young, err := seen.Value.After(since)
	if err != nil || len(young.Stored) == len(seen.Value.Stored) {
		return err
	}
	if len(young.Stored) == 0 {
		return drop(ctx, st, st.Tombstones, seen.Key, seen.Revision)
	}
	_, err = st.Update(ctx, "tombstones collected", nil, func(v *store.View) error {
		row, err := st.Tombstones.In(v, seen.Key)
		if err != nil || row.Revision != seen.Revision {
			return err
		}
		return st.Tombstones.Put(v, seen.Key, young)
	})
	return err
}

// drop deletes a row, unless it has changed.
func drop[T any](
	ctx context.Context, st *store.Store, table store.Table[T], key string, revision int64,
) error {
	_, err := st.Update(ctx, "row collected", nil, func(v *store.View) error {
		row, err := table.In(v, key)
		if err == nil && row.Revision == revision {
			table.Delete(v, key)
		}
		return err
	})
	return err
}
