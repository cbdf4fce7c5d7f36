package front

import (
	"context"
	"crypto/x509"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/verifier"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Kubelets asks clusters about the certificates of their kubelets.
type Kubelets interface {
	// ProvesKubelet returns an error unless a certificate is one of the kubelet of a node, for a request
	// that this provider has approved.
	ProvesKubelet(
		ctx context.Context, c flexnode.Cluster, node string, leaf *x509.Certificate,
	) error
}

// provedByKubelet reports whether a machine with a key runs the kubelet of a request's node. It counts
// after a restore only, when the store may not know what has happened since the backup.
func (a *API) provedByKubelet(r *request, key string, proof *api.KubeletProof) (bool, error) {
	if poll, ok := a.lookUp(r); proof == nil || !ok || poll.MachineKey == key || a.Kubelets == nil {
		return false, nil
	}
	epoch := int64(0)
	_, err := a.Store.Update(r.Context(), "", nil, func(v *store.View) (err error) {
		epoch, err = a.Store.Epoch(v)
		return err
	})
	if err != nil || epoch == 1 {
		return false, err
	}
	cluster, err := a.Index.Cluster(r.clusterKey())
	if err != nil || !cluster.Exists() {
		return false, err
	}
	leaf, refused := verifier.SignedByKubelet(proof.Certificate, proof.Signature,
		machinekey.Statement(r.uid, key))
	if refused == nil {
		refused = a.Kubelets.ProvesKubelet(r.Context(), cluster.Value,
			flexnode.LastOf(r.nodeKey()), leaf)
	}
	if refused != nil {
		a.Audit.Warn("a machine's key is not proved by its kubelet", "node", r.nodeKey(), "key", key,
			"why", refused)
		return false, nil
	}
	a.Audit.Warn("a machine's key is proved by its kubelet after a restore", "node", r.nodeKey(),
		"key", key)
	return true, nil
}
