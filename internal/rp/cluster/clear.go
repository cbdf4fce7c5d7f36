package cluster

import (
	"context"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// clear deletes what rows of the registration are left in any table, and the layers of its facts.
func (w *worker) clear(ctx context.Context, c flexnode.Cluster) error {
	for _, prefix := range []string{
		w.Store.Status.Key(w.key + "/"), w.Store.History.Key(w.key + "/"),
		w.Store.Secrets.Key(w.key + "/"), w.Store.Bundles.Key(w.key + "/"),
		w.Store.Tokens.Key(w.key + "/"), w.Store.PodCIDRs.Key(w.key + "/"),
	} {
		for {
			keys, more, err := w.page(ctx, prefix, clearBatch)
			if err != nil {
				return err
			}
			if err := w.deleteRows(ctx, prefix, keys); err != nil {
				return err
			}
			if !more {
				break
			}
		}
	}
	return w.clearLayers(ctx, c)
}

// deleteRows deletes rows of one table.
func (w *worker) deleteRows(ctx context.Context, prefix string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	writes := make([]store.Write, len(keys))
	for i, key := range keys {
		writes[i] = store.Write{Key: prefix + key, Delete: true}
	}
	_, err := w.Store.Commit(ctx, []store.Condition{w.owner.Fence()}, writes)
	if err == nil && w.Store.Did != nil {
		w.Store.Did("rows cleared")
	}
	return err
}

// clearLayers deletes the layers of the cluster's facts, of which no node is left. Such a layer
// names its cluster: it is what the facts in it make for this one.
func (w *worker) clearLayers(ctx context.Context, c flexnode.Cluster) error {
	layers, _, err := w.Store.Layers.List(ctx, "")
	if err != nil {
		return err
	}
	var own []string
	for _, l := range layers {
		facts, err := flexnode.FactsOf(l.Value)
		if err == nil && flexnode.FactsLayer(facts, c.ID).ID == l.Key {
			own = append(own, l.Key)
		}
	}
	for batch := range slices.Chunk(own, clearBatch) {
		if err := w.deleteRows(ctx, w.Store.Layers.Key(""), batch); err != nil {
			return err
		}
	}
	return nil
}
