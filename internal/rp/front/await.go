package front

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// await waits for what a cluster's reconciler has to do, as long as a caller waits, and gives his
// place to others meanwhile. It is no error that it was not done by then.
func (a *API) await(r *request, until func(context.Context) error) (done bool, err error) {
	wait, cancel := context.WithTimeout(r.Context(), a.patience())
	defer cancel()
	r.place.Rest(func() { err = until(wait) })
	if err != nil && wait.Err() != nil && r.Context().Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// awaitCluster waits until the cluster of a request is as wanted, or gone.
func (a *API) awaitCluster(r *request, wanted func(flexnode.Cluster) bool) error {
	_, err := a.await(r, func(ctx context.Context) error {
		_, err := a.Store.Clusters.Wait(ctx, r.clusterKey(),
			func(row store.Row[flexnode.Cluster]) bool { return !row.Exists() || wanted(row.Value) })
		return err
	})
	return err
}

// awaitCredential waits until the credential of a node can be used.
func (a *API) awaitCredential(r *request, n flexnode.Node) error {
	_, err := a.await(r, func(ctx context.Context) error {
		_, err := a.Credentials.Await(ctx, n.Credential)
		return err
	})
	return err
}
