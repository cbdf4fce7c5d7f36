package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// deleteNode deletes the Node of a machine that has left, unless it is another machine's.
func (w *worker) deleteNode(ctx context.Context, key string) (time.Time, error) {
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	row, err := w.Store.Certificates.Get(ctx, key)
	if err != nil || row.Value.Leaving == "" {
		return noTime, err
	}
	node, err := w.Store.Nodes.Get(ctx, key)
	if err != nil {
		return noTime, err
	}
	leaving, name := row.Value.Leaving, flexnode.LastOf(key)
	other, err := s.taken(name)
	if err != nil {
		return noTime, err
	}
	if other == "" && (!node.Exists() || node.Value.UID == leaving) {
		err := w.deleteNamed(ctx, s, name)
		if apierrors.IsForbidden(err) {
			w.log.Warn("the provider may not delete Nodes: apply rbac-provider.yaml", "node", name,
				"error", err)
			return w.Now().Add(taintsRefusal), nil
		}
		if err != nil {
			return noTime, fmt.Errorf("cannot delete the Node %s: %w", name, err)
		}
	}
	_, err = w.Store.Update(ctx, "Node deleted", nil, func(v *store.View) error {
		v.Fence(w.owner.Fence())
		row, err := w.Store.Certificates.In(v, key)
		if err != nil || row.Value.Leaving != leaving {
			return err
		}
		next := row.Value
		next.Leaving = ""
		return w.Store.Certificates.Put(v, key, next)
	})
	return noTime, err
}

// deleteNamed deletes a Node; it may be gone already.
func (w *worker) deleteNamed(ctx context.Context, s *session, name string) error {
	if !w.owner.Valid() {
		return errNotOwner
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	err := s.connection.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		w.Audit.Info("Node deleted, since its machine has left", "cluster", w.key, "node", name)
		w.did("Node deleted")
	}
	return err
}
