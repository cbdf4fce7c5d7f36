package rp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// deletion is the body that document 004 gives the answer to a DELETE.
type deletion struct {
	Status  string  `json:"status"`
	Cleanup cleanup `json:"cleanup"`
	Note    string  `json:"note"`
}

type cleanup struct {
	ConfigURLRevoked      bool `json:"configUrlRevoked"`
	BootstrapTokenRevoked bool `json:"bootstrapTokenRevoked"`
	MonitoringDisabled    bool `json:"monitoringDisabled"`
}

// deleteNode deletes a node: first its credentials, then the node, in whose place stays a tombstone. A cluster that cannot be reached does
// not keep it: the token's Secret is taken away later, and expires.
func (s *Server) deleteNode(w http.ResponseWriter, r *request) error {
	ctx, marked := r.Context(), false
	for range tries {
		node, err := s.Store.Nodes.Get(ctx, r.nodeKey())
		if err != nil {
			return err
		}
		switch {
		case !node.Exists() && !marked:
			w.WriteHeader(http.StatusNoContent)
			return nil
		case marked && node.Value.State != api.Deleting: // somebody else has finished what we began, and it may be there again
			answerDelete(w, true)
			return nil
		}
		if err := r.preconditions(node.Value.ETag()); err != nil && !marked {
			return err
		}
		if node.Value.State == api.Deleting && !marked { // it is somebody else's to have deleted it; help, so that it is gone when we say so
			err := s.finishDelete(ctx, node)
			if errors.Is(err, store.ErrConflict) {
				continue
			}
			if err == nil {
				w.WriteHeader(http.StatusNoContent)
			}
			return err
		}
		r.before = node.Value.Version
		revoked, did, err := s.remove(ctx, node)
		marked = marked || did
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		answerDelete(w, revoked)
		return nil
	}
	return busy()
}

func answerDelete(w http.ResponseWriter, revoked bool) {
	arm.WriteJSON(w, http.StatusOK, deletion{
		Status:  "Deleted",
		Cleanup: cleanup{ConfigURLRevoked: true, BootstrapTokenRevoked: revoked, MonitoringDisabled: true},
		Note:    "ARM resource deleted. Node machine lifecycle (stop/start/destroy) must be managed separately.",
	})
}

// remove marks a node as being deleted, revokes its credential, and puts a tombstone in its place. It tells whether the token's Secret
// is gone already, and whether it has marked the node.
func (s *Server) remove(ctx context.Context, node store.Row[store.Node]) (revoked, marked bool, err error) {
	if node.Value.State != api.Deleting {
		next := node.Value
		next.State = api.Deleting
		txn := s.Store.Txn()
		s.Store.Nodes.Put(txn, node, next)
		if err := s.revokeAny(ctx, txn, node.Value.Credential); err != nil {
			return false, false, err
		}
		revision, err := s.commit(ctx, "node marked", txn)
		if err != nil {
			return false, false, err
		}
		marked = true
		node = store.Row[store.Node]{Key: node.Key, Value: next, Revision: revision}
	}
	s.revokeNow(ctx, node.Value.Credential)
	left, err := s.Store.Credentials.Get(ctx, node.Value.Credential)
	if err != nil {
		return false, marked, err
	}
	return !left.Exists(), marked, s.finishDelete(ctx, node)
}

// finishDelete puts the tombstone in the place of a node that is marked as being deleted.
func (s *Server) finishDelete(ctx context.Context, node store.Row[store.Node]) error {
	clusterKey := node.Key[:strings.LastIndex(node.Key, "/")]
	cluster, err := s.Store.Clusters.Get(ctx, clusterKey)
	if err != nil {
		return err
	}
	txn := s.Store.Txn()
	s.Store.Nodes.Delete(txn, node)
	s.Store.Status.Clear(txn, node.Key)
	s.Store.Secrets.Clear(txn, node.Key)
	s.free(txn, cluster.Value, clusterKey, node.Value)
	s.Store.Tombstones.Set(txn, node.Key, store.Tombstone{ID: node.Value.ID, Version: node.Value.Version, Agent: node.Value.Agent(), Deleted: s.Now().UTC()})
	_, err = s.commit(ctx, "node deleted", txn)
	return err
}
