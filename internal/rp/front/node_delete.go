package front

import (
	"context"
	"net/http"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// deleteNode deletes a node with all that belongs to it, in one change: what a machine could have
// joined with is revoked, and a tombstone is written for the machine that was the node. A cluster
// that does not answer does not keep it: the Secret of the token is deleted later, and expires.
func (a *API) deleteNode(w http.ResponseWriter, r *request) error {
	var gone *flexnode.Node
	ahead := []string{
		a.Store.Nodes.Key(r.nodeKey()), a.Store.Clusters.Key(r.clusterKey()),
		a.Store.Tombstones.Key(r.nodeKey()), a.Store.EpochKey(),
	}
	_, err := a.Store.Update(r.Context(), "node deleted", ahead, func(v *store.View) error {
		gone = nil
		node := a.Store.Nodes.Row(v, r.nodeKey())
		if !node.Exists() {
			return nil
		}
		if err := r.preconditions(node.Value.ETag()); err != nil {
			return err
		}
		gone = &node.Value
		return a.Credentials.RemoveNode(v, r.nodeKey(), true, a.Now())
	})
	if err != nil {
		return err
	}
	if gone == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	r.before = decimal(gone.Revision)
	revoked := true // nothing is left of its credential
	if gone.Credential != "" {
		revoked, err = a.await(r, func(ctx context.Context) error {
			_, err := a.Store.Credentials.Wait(ctx, gone.Credential,
				func(row store.Row[store.Credential]) bool {
					return !row.Exists() || row.Value.TokenID == ""
				})
			return err
		})
		if err != nil {
			return err
		}
	}
	arm.WriteJSON(w, http.StatusOK, object{ // document 004
		"status": "Deleted",
		"cleanup": object{
			"configUrlRevoked": true, "bootstrapTokenRevoked": revoked, "monitoringDisabled": true,
		},
		"note": "ARM resource deleted. Node machine lifecycle (stop/start/destroy) must be managed " +
			"separately.",
	})
	return nil
}
