package front

import (
	"net/http"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// getCluster answers GET of a target cluster.
func (a *API) getCluster(w http.ResponseWriter, r *request) error {
	row, err := a.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err != nil {
		return err
	}
	if !row.Exists() {
		return noCluster(r)
	}
	shown := flexnode.ShownCluster(row.Value)
	writeResource(w, false, shown.ETag, shown)
	return nil
}

// listClusters answers the clusters of a subscription or resource group.
func (a *API) listClusters(w http.ResponseWriter, r *request) error {
	prefix := r.subscriptionKey() + "/"
	if group := r.names.of("group"); group != "" {
		prefix += arm.Fold(group) + "/"
	}
	after, size, err := a.page(r, prefix)
	if err != nil {
		return err
	}
	rows, more, err := a.Index.Clusters(prefix, after, size)
	if err != nil {
		return err
	}
	page := api.List[api.ManagedCluster]{Value: []api.ManagedCluster{}}
	for _, row := range rows {
		page.Value = append(page.Value, flexnode.ShownCluster(row.Value))
	}
	if more {
		if page.NextLink, err = a.nextLink(r, prefix, rows[len(rows)-1].Key); err != nil {
			return err
		}
	}
	arm.WriteJSON(w, http.StatusOK, page)
	return nil
}
