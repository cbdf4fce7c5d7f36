package front

import (
	"context"
	"net/http"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// leave has the Node of a machine that leaves its cluster be deleted. The machine of a node that was
// deleted may not write any more from then on.
func (a *API) leave(w http.ResponseWriter, r *request) error {
	key := r.nodeKey()
	var uid string
	ahead := []string{a.Store.Nodes.Key(key), a.Store.Tombstones.Key(key),
		a.Store.Certificates.Key(key), a.Store.Clusters.Key(r.clusterKey())}
	_, err := a.Store.Update(r.Context(), "node left", ahead, func(v *store.View) (err error) {
		uid, err = a.leaves(v, r)
		return err
	})
	if err != nil {
		return err
	}
	left := func(row store.Row[flexnode.Certificates]) bool { return row.Value.Leaving != uid }
	var row store.Row[flexnode.Certificates]
	_, err = a.await(r, func(ctx context.Context) (err error) {
		row, err = a.Store.Certificates.Wait(ctx, key, left)
		return err
	})
	if err != nil {
		return err
	}
	if !left(row) {
		return arm.Errorf(503, "NodeNotDeleted", "The Node is deleted when the cluster answers.")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// leaves writes that the machine of a node leaves, and returns the uid of the node. A Node that is
// another machine's by now is not deleted.
func (a *API) leaves(v *store.View, r *request) (uid string, err error) {
	key := r.nodeKey()
	row, node := a.Store.Certificates.Row(v, key).Value, a.Store.Nodes.Row(v, key)
	if node.Exists() && named(r.uid, node.Value.UID) {
		if err := a.mayHave(r, node.Value); err != nil {
			return "", err
		}
		row.Leaving = node.Value.UID
		return row.Leaving, a.Store.Certificates.Put(v, key, row.Leave(row.Leaving))
	}
	cluster := a.Store.Clusters.Row(v, r.clusterKey())
	if !cluster.Exists() || cluster.Value.Deleting() { // whose rows go with it
		return "", a.notFound(r)
	}
	stone, ok, err := a.Store.Tombstones.Row(v, key).Value.Of(r.uid)
	if err != nil {
		return "", err
	}
	if !ok || !r.caller.isNode(stone.Identity, stone.Former, stone.MachineKey) {
		return "", a.notFound(r)
	}
	if !node.Exists() {
		row.Leaving = stone.UID
	}
	current := func(o flexnode.Certificate) bool { return node.Exists() && o.UID == node.Value.UID }
	row = row.Revoke(stone.UID, current, a.Now()).Leave(stone.UID)
	return stone.UID, a.Store.Certificates.Put(v, key, row)
}
