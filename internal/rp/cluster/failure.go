package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

var noTime time.Time

// noteFailure takes down that the cluster does not answer. When it has not for a while, the row of
// the cluster says so: all its Nodes are Unknown then, without a write for each.
func (w *worker) noteFailure(ctx context.Context, cause error) {
	now := w.Now()
	w.mu.Lock()
	first := w.failing.IsZero()
	if first {
		w.failing = now
	}
	lasts := now.Sub(w.failing)
	w.mu.Unlock()
	if first {
		w.log.Warn("the cluster does not answer", slog.Any("error", cause))
	}
	row, err := w.Index.Cluster(w.key)
	if err != nil || !row.Exists() || !w.owner.Valid() {
		return
	}
	known := row.Value.Probe.Unreachable != ""
	if row.Value.Properties.Reachable && lasts < unreachableAfter ||
		!row.Value.Properties.Reachable && known {
		return
	}
	if err := w.writeUnreachable(ctx, cause); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot write that the cluster does not answer", slog.Any("error", err))
	}
}

// writeUnreachable has the row of the cluster say that it does not answer, and why.
func (w *worker) writeUnreachable(ctx context.Context, cause error) error {
	_, err := w.Store.Update(ctx, "cluster unreachable", nil, func(v *store.View) error {
		v.Fence(w.owner.Fence())
		row, err := w.Store.Clusters.In(v, w.key)
		if err != nil || !row.Exists() {
			return err
		}
		next := row.Value
		if !next.Properties.Reachable && next.Probe.Unreachable != "" {
			return nil
		}
		next.Properties.Reachable, next.Probe.Since = false, w.Now().UTC()
		next.Probe.Unreachable = "The cluster does not answer: " + shorten(cause.Error()) + "."
		return w.Store.Clusters.Put(v, w.key, next)
	})
	return err
}

// shorten bounds a text that is kept.
func shorten(text string) string {
	const most = 500
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
