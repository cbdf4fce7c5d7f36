package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// progress is the time between Follow's reports that there were no changes.
const progress = 5 * time.Second

// Follow implements Backend.
func (m *Memory) Follow(ctx context.Context, prefix string, after int64, see func(kv.Batch)) error {
	if err := m.begin(ctx, Call{Op: "follow", Keys: []string{prefix}}); err != nil {
		return err
	}
	broken := m.knob.breaks()
	for {
		batch, changed, err := m.db.since(prefix, after)
		if err != nil {
			return err
		}
		see(batch)
		after = batch.Revision
		tick := time.NewTimer(progress)
		select {
		case <-ctx.Done():
		case <-broken:
		case <-changed:
		case <-tick.C:
		}
		tick.Stop()
		if err := m.begin(ctx, Call{Op: "changes", Keys: []string{prefix}}); err != nil {
			return err
		}
		select {
		case <-broken:
			return ErrBroken
		default:
		}
	}
}

var ErrBroken = errors.New("the connection to the store is broken")

// since returns the changes below a prefix after a revision, and a channel that the next change
// closes.
func (db *memoryDB) since(prefix string, after int64) (kv.Batch, <-chan struct{}, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if after+1 < db.compacted {
		return kv.Batch{}, nil, kv.ErrCompacted
	}
	batch := kv.Batch{Revision: db.revision}
	first, _ := slices.BinarySearchFunc(db.log, after+1, func(e kv.Event, revision int64) int {
		return int(e.Revision - revision)
	})
	for _, e := range db.log[first:] {
		if strings.HasPrefix(e.Key, prefix) {
			batch.Events = append(batch.Events, e)
		}
	}
	return batch, db.changed, nil
}

// Compact implements Backend.
func (m *Memory) Compact(ctx context.Context, revision int64) error {
	if err := m.begin(ctx, Call{Op: "compact"}); err != nil {
		return err
	}
	db := m.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if revision <= db.compacted {
		return kv.ErrCompacted
	}
	if revision > db.revision {
		return errors.New("cannot compact the store to a revision that is not yet")
	}
	db.compacted = revision
	db.log = slices.DeleteFunc(db.log, func(e kv.Event) bool { return e.Revision < revision })
	var gone []*record
	db.records.Ascend(func(r *record) bool {
		if r.forget(revision); len(r.values) == 0 {
			gone = append(gone, r)
		}
		return true
	})
	for _, r := range gone {
		db.records.Delete(r)
	}
	return nil
}

// forget drops the values that were no more at a revision.
func (r *record) forget(revision int64) {
	for len(r.values) > 1 && r.values[1].Revision <= revision {
		r.values = r.values[1:]
	}
	if first := r.values[0]; first.deleted && first.Revision <= revision {
		r.values = r.values[1:]
	}
}
