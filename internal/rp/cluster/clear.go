package cluster

import (
	"context"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// clear deletes what rows of the registration are left in any table, and the layers of its facts.
func (w *worker) clear(ctx context.Context, c flexnode.Cluster) error {
	prefixes := append(w.Store.OfNodes(w.key),
		w.Store.Bundles.Key(w.key+"/"), w.Store.Tokens.Key(w.key+"/"),
		w.Store.Certificates.Key(w.key+"/"))
	if _, err := w.Store.Clear(ctx, prefixes, w.owner.Fence()); err != nil {
		return err
	}
	return w.clearLayers(ctx, c)
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
			own = append(own, w.Store.Layers.Key(l.Key))
		}
	}
	for batch := range slices.Chunk(own, clearBatch) {
		if err := w.Store.DeleteKeys(ctx, batch, w.owner.Fence()); err != nil {
			return err
		}
	}
	return nil
}
