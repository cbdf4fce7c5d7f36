package cluster

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// offer decides anew, after nodes of the cluster have failed versions or somebody has allowed them,
// which revision the other nodes are offered. What is held being the same as the last time, nodes
// are offered what they would be: whoever changes one since has decided by the same.
func (w *worker) offer(ctx context.Context) (time.Time, error) {
	w.noteHeld()
	w.mu.Lock()
	holding, decided := w.holding, w.offered > 0 && w.offered == w.holding
	w.mu.Unlock()
	if decided {
		return noTime, nil
	}
	cluster, err := w.Index.Cluster(w.key)
	if err != nil || !cluster.Exists() || cluster.Value.Deleting() {
		return noTime, err
	}
	failures := cluster.Value.Failures
	var keys []string
	w.Index.Outlines(w.key+"/", "", func(key string, o flexnode.Outline) bool {
		if o.MayBeOfferedAnother(failures) {
			keys = append(keys, key)
		}
		return true
	})
	changed := 0
	_, err = w.Store.UpdateEach(ctx, keys, store.Each{
		What: "nodes offered",
		Ahead: func(key string) []string {
			return []string{
				w.Store.Nodes.Key(key), w.Store.Status.Key(key), w.Store.History.Key(key),
			}
		},
		One: func(v *store.View, key string) error {
			v.Fence(w.owner.Fence())
			did, err := w.offerNode(v, key)
			if did {
				changed++
			}
			return err
		},
	})
	if changed > 0 {
		w.log.Info("other revisions are offered to nodes", slog.Int("nodes", changed))
	}
	if err == nil && cluster.Value.Facts != "" {
		w.mu.Lock()
		w.offered = holding
		w.mu.Unlock()
	}
	return noTime, err
}

// noteHeld notes which versions are held now, or have been since it was called last: the index may
// tell of several changes at once.
func (w *worker) noteHeld() {
	w.mu.Lock()
	defer w.mu.Unlock()
	cluster, err := w.Index.Cluster(w.key)
	if err != nil {
		return
	}
	verdicts := cluster.Value.Failures.Verdicts()
	if w.holding == 0 || !slices.Equal(w.verdicts, verdicts) {
		w.verdicts = verdicts
		w.holding++
	}
}

// offerNode decides it for one node.
func (w *worker) offerNode(v *store.View, key string) (changed bool, err error) {
	parent, err := w.parent(v)
	if err != nil || parent.FactsLayer == nil {
		return false, err
	}
	node, err := w.Store.Nodes.In(v, key)
	if err != nil || !node.Exists() {
		return false, err
	}
	status, err := w.Store.Status.In(v, key)
	if err != nil {
		return false, err
	}
	history, err := w.Store.History.In(v, key)
	if err != nil {
		return false, err
	}
	applied, _, _ := status.Value.Versions()
	next, err := flexnode.Standing{
		Node: node.Value, History: history.Value, Applied: applied,
		Failures: parent.Cluster.Failures, Tenant: parent.Tenant(),
	}.Offer()
	if err != nil || reflect.DeepEqual(next, node.Value) {
		return false, err
	}
	return true, w.Store.Nodes.Put(v, key, next)
}
