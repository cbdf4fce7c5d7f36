package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// collectInterval is the mean time between two collections of a replica.
const collectInterval = 6 * time.Hour

// collect signs rows of an earlier key or epoch again, and deletes rows and configurations that are
// not needed any more.
func (s *service) collect(ctx context.Context) {
	for {
		_, err := credential.SignAgain(ctx, s.store, s.api.Credentials.Keys, time.Now(), false)
		if err != nil && ctx.Err() == nil {
			s.say("what is stored is not signed again")(err)
		}
		if !store.Pause(ctx, store.Jitter(collectInterval)) {
			return
		}
		err = errors.Join(collectOld(ctx, s.store, time.Now()), s.api.Credentials.Delivery.Sweep(ctx))
		if err != nil && ctx.Err() == nil {
			s.say("old rows are not deleted yet")(err)
		}
	}
}

// collectOld deletes unused layers, and old tombstones, operations, diagnoses, and certificates.
func collectOld(ctx context.Context, st *store.Store, now time.Time) error {
	return errors.Join(
		st.CollectLayers(ctx),
		collectEach(ctx, st, st.Tombstones, func(v *store.View, r store.Row[flexnode.Tombstones]) error {
			needed, err := r.Value.Needed(st.Certificates.Row(v, r.Key).Value, now)
			switch {
			case err != nil || len(needed.Stored) == len(r.Value.Stored):
				return err
			case len(needed.Stored) > 0:
				return st.Tombstones.Put(v, r.Key, needed)
			}
			st.Tombstones.Delete(v, r.Key)
			return nil
		}),
		collectEach(ctx, st, st.Certificates,
			func(v *store.View, r store.Row[flexnode.Certificates]) error {
				if r.Value.Since.IsZero() && r.Value.Leaving == "" && now.After(r.Value.Ends) {
					st.Certificates.Delete(v, r.Key)
				}
				return nil
			}),
		collectEach(ctx, st, st.ArcLeft, func(v *store.View, r store.Row[store.ArcLeft]) error {
			return collectArcLeft(v, st, r, now)
		}),
		collectEach(ctx, st, st.Operations, func(v *store.View, r store.Row[flexnode.Operation]) error {
			if !r.Value.Ended.IsZero() && now.Sub(r.Value.Started) > front.OperationAge {
				st.Operations.Delete(v, r.Key)
			}
			return nil
		}),
		collectEach(ctx, st, st.Diagnoses, func(v *store.View, r store.Row[flexnode.Diagnosis]) error {
			if now.After(r.Value.Expires) {
				st.Diagnoses.Delete(v, r.Key)
			}
			return nil
		}))
}

// collectArcLeft erases an Arc machine's secret after a while, and forgets it with its tombstone.
func collectArcLeft(
	v *store.View, st *store.Store, r store.Row[store.ArcLeft], now time.Time,
) error {
	slash := strings.LastIndexByte(r.Key, '/')
	if _, ok, err := st.Tombstones.Row(v, r.Key[:slash]).Value.Of(r.Key[slash+1:]); err != nil || !ok {
		st.ArcLeft.Delete(v, r.Key)
		return err
	}
	if r.Value.Secret == nil || now.Before(r.Value.Deleted.Add(credential.SecretAge)) {
		return nil
	}
	r.Value.Secret = nil
	return st.ArcLeft.Put(v, r.Key, r.Value)
}

// collectEach calls decide with each row of a table. A row for which it fails stops no other.
func collectEach[T any](
	ctx context.Context, st *store.Store, table store.Table[T],
	decide func(*store.View, store.Row[T]) error,
) error {
	keys, err := table.Keys(ctx, "")
	if err != nil {
		return err
	}
	_, err = st.UpdateEach(ctx, keys, store.Each{
		What: "row collected",
		One: func(v *store.View, key string) error {
			if row := table.Row(v, key); row.Exists() {
				return decide(v, row)
			}
			return nil
		},
	})
	return err
}
