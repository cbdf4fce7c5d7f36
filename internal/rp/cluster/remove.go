package cluster

import (
	"context"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	removeBatch = 30          // the nodes to delete before the rest is counted
	clearBatch  = 100         // the credentials that are removed at a time
	removePause = time.Second // before the remaining credentials are counted
)

// remove deletes the registration as far as possible now: its nodes, its credentials, its other
// rows, and in the end its own. It can be interrupted anywhere, and continues from the store.
func (w *worker) remove(ctx context.Context) (time.Time, error) {
	row, err := w.Store.Clusters.Get(ctx, w.key)
	if err != nil || !row.Value.Deleting() {
		return noTime, err
	}
	operation, err := w.Store.Operations.Get(ctx, row.Value.Deletion.Operation)
	if err != nil {
		return noTime, err
	}
	nodes, err := w.Store.Nodes.First(ctx, w.key+"/", removeBatch)
	if err != nil {
		return noTime, err
	}
	if len(nodes) > 0 { // as many are deleted as may be now
		policy, _ := flexnode.ReadPolicy(row.Value.Properties.RolloutPolicy) // it was checked
		next, n, again := row.Value.Deletion.Take(policy, len(nodes),
			max(operation.Value.Total, len(nodes)), time.Now().UTC())
		if n == 0 {
			return again, nil
		}
		if next != *row.Value.Deletion { // counted first: a killed process wipes fewer, not more
			if err := w.setDeletion(ctx, "nodes to wipe", next); err != nil {
				return noTime, err
			}
		}
		return time.Now(), w.removeNodes(ctx, nodes[:n])
	}
	if next := *row.Value.Deletion; !next.Emptied {
		next.Emptied = true
		return time.Now(), w.setDeletion(ctx, "cluster emptied", next)
	}
	left, err := w.Store.Credentials.First(ctx, w.key+"/", clearBatch)
	if err != nil {
		return noTime, err
	}
	if len(left) > 0 {
		// Each is a task of its own that waits while the cluster does not answer, but not for ever:
		// then its Secret is left to expire (credential.Service.Step).
		for _, key := range left {
			w.tasks.Add(task{taskCredential, key})
		}
		return time.Now().Add(removePause), nil
	}
	// Layers are collected.
	prefixes := append(w.Store.OfNodes(w.key), w.Store.Certificates.Key(w.key+"/"))
	if _, err := w.Store.Clear(ctx, prefixes, w.owner.Fence()); err != nil {
		return noTime, err
	}
	return noTime, w.removeRow(ctx)
}

// setDeletion writes how far a deletion is, unless it was aborted meanwhile.
func (w *worker) setDeletion(ctx context.Context, what string, to flexnode.Deletion) error {
	return w.editCluster(ctx, what, func(c *flexnode.Cluster) bool {
		if !c.Deleting() || c.Deletion.Operation != to.Operation {
			return false
		}
		c.Deletion = &to
		return true
	})
}

func (w *worker) removeNodes(ctx context.Context, keys []string) error {
	_, err := w.Store.UpdateEach(ctx, keys, store.Each{
		What: "nodes removed",
		Ahead: func(key string) []string {
			return []string{w.Store.Nodes.Key(key), w.Store.Tombstones.Key(key), w.Store.EpochKey()}
		},
		One: func(v *store.View, key string) error {
			v.Fence(w.owner.Fence())
			row, node := w.Store.Clusters.Row(v, w.key), w.Store.Nodes.Row(v, key)
			if !row.Value.Deleting() || !node.Exists() {
				return nil
			}
			v.Fail(w.Credentials.RemoveNode(v, key, row.Value.Deletion.Wipe, time.Now()))
			return w.operation(v, row.Value, func(o *flexnode.Operation) {
				o.Done++
				o.Total = max(o.Total, o.Done)
			})
		},
	})
	return err
}

func (w *worker) operation(
	v *store.View, c flexnode.Cluster, change func(*flexnode.Operation),
) error {
	id := c.Deletion.Operation
	row := w.Store.Operations.Row(v, id)
	if !row.Exists() {
		return nil
	}
	change(&row.Value)
	return w.Store.Operations.Put(v, id, row.Value)
}

// removeRow deletes the row of the registration. Its operation has succeeded then.
func (w *worker) removeRow(ctx context.Context) error {
	err := w.update(ctx, "cluster removed", nil, func(v *store.View) error {
		row := w.Store.Clusters.Row(v, w.key)
		if !row.Value.Deleting() {
			return nil
		}
		w.giveBack(v, row.Value.APIServer)
		w.Store.Clusters.Delete(v, w.key)
		w.Store.Rollouts.Delete(v, w.key)
		return w.operation(v, row.Value, func(o *flexnode.Operation) {
			o.State, o.Ended = api.Succeeded, time.Now().UTC()
		})
	})
	if err == nil {
		w.Audit.Info("registration deleted", "cluster", w.key)
	}
	return err
}
