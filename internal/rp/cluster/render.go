package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// renderBatch is the number of nodes that are rendered before a pause.
	renderBatch = 50
	// renderPause is the pause after a batch: new facts reach the agents of a large cluster over some
	// time, not all at once.
	renderPause = 200 * time.Millisecond
)

// render renders a batch of the nodes that were not rendered with the cluster's present facts.
func (w *worker) render(ctx context.Context) (time.Time, error) {
	cluster, err := w.Index.Cluster(w.key)
	if err != nil || !cluster.Exists() || cluster.Value.Facts == "" || cluster.Value.Deleting() {
		return noTime, err
	}
	keys := w.Index.Stale(w.key, cluster.Value.Facts, renderBatch)
	if len(keys) == 0 {
		return noTime, nil
	}
	last, err := w.Store.UpdateEach(ctx, keys, store.Each{
		What: "nodes rendered",
		Ahead: func(key string) []string {
			return []string{w.Store.Nodes.Key(key), w.Store.History.Key(key), w.Store.EpochKey()}
		},
		One: func(v *store.View, key string) error {
			v.Fence(w.owner.Fence())
			parent, err := w.parent(v)
			if err != nil || parent.FactsLayer == nil {
				return err
			}
			return w.renderNode(v, parent, key)
		},
	})
	if err != nil && last == 0 {
		return noTime, err
	}
	if err != nil { // these do not delay the others
		w.log.Warn("cannot render some nodes", slog.Any("error", err))
	}
	return time.Now().Add(renderPause), nil // the index may be behind, and there may be more
}

// parent returns the Parent for nodes of the cluster; without FactsLayer if they cannot be
// rendered.
func (w *worker) parent(v *store.View) (flexnode.Parent, error) {
	row := w.Store.Clusters.Row(v, w.key)
	if row.Value.Facts == "" || row.Value.Deleting() {
		return flexnode.Parent{}, nil
	}
	facts, err := flexnode.ReadLayer(w.Store.Layers.Row(v, row.Value.Facts).Value)
	if err == nil && facts != nil && w.Defaults != nil {
		err = w.Store.KeepLayer(v, w.Defaults)
	}
	return flexnode.Parent{
		Cluster: row.Value, FactsLayer: facts, Defaults: w.Defaults, Installation: w.Installation,
	}, err
}

func (w *worker) renderNode(v *store.View, parent flexnode.Parent, key string) error {
	node := w.Store.Nodes.Row(v, key)
	if !node.Exists() || node.Value.Facts == parent.Cluster.Facts &&
		(node.Value.Revision != 0 || node.Value.Tried == parent.Cluster.Properties.KubernetesVersion) {
		return nil
	}
	history := w.Store.History.Row(v, key)
	last := store.RevisionIn(v, history.Value, node.Value.Revision)
	offered := store.RevisionIn(v, history.Value, node.Value.Assigned)
	var was *flexnode.Layer
	if offered != nil {
		var err error
		was, err = flexnode.ReadLayer(w.Store.Layers.Row(v, offered.Facts).Value)
		v.Fail(err)
	}
	kept, now, applied := history.Value, time.Now().UTC(), w.Index.Applied(key)
	before, first := flexnode.RefreshOffered(node.Value, offered, was, parent, now, w.Renderer)
	next, revision := flexnode.Refresh(before, last, parent, now, w.Renderer,
		applied, flexnode.Joins(&node.Value, applied, w.Heard(key), false))
	for _, r := range []struct{ made, from *flexnode.Revision }{{first, offered}, {revision, last}} {
		if r.made == nil {
			continue
		}
		v.Fail(w.Credentials.Sign(v, next.UID, r.made, r.from))
		kept = kept.With(*r.made, next.Assigned, next.Revision, applied)
	}
	if first != nil || revision != nil {
		v.Fail(w.Store.History.Put(v, key, kept))
	}
	return w.Store.Nodes.Replace(v, key, node.Value, next)
}
