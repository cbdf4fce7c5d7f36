package front

import (
	"net/http"
	"strings"

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
	writeCluster(w, http.StatusOK, row.Value)
	return nil
}

func writeCluster(w http.ResponseWriter, status int, c flexnode.Cluster) {
	shown := flexnode.ShownCluster(c)
	w.Header().Set("ETag", shown.ETag)
	arm.WriteJSON(w, status, shown)
}

// listClusters answers the clusters of a subscription or resource group.
func (a *API) listClusters(w http.ResponseWriter, r *request) error {
	prefix := r.subscriptionKey() + "/"
	if group := r.names["group"]; group != "" {
		prefix += strings.ToLower(group) + "/"
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

// listNodes answers the nodes of a cluster, a page at a time, in the order of their names.
func (a *API) listNodes(w http.ResponseWriter, r *request) error {
	key := r.clusterKey()
	if cluster, err := a.Index.Cluster(key); err != nil || !cluster.Exists() {
		stored, err := a.Store.Clusters.Get(r.Context(), key) // the index may be behind
		if err != nil {
			return err
		}
		if !stored.Exists() {
			return noParent(r)
		}
	}
	after, size, err := a.page(r, key)
	if err != nil {
		return err
	}
	rows, more, err := a.Index.Nodes(key+"/", after, size)
	if err != nil {
		return err
	}
	page, reachable := api.List[api.FlexNodeConfig]{Value: []api.FlexNodeConfig{}}, a.reachable(key)
	for _, row := range rows {
		status, err := a.status(row.Key, row.Value, nil, reachable)
		if err != nil {
			return err
		}
		page.Value = append(page.Value,
			flexnode.Shown(row.Value, nil, nil, flexnode.Brief(status)))
	}
	if more {
		if page.NextLink, err = a.nextLink(r, key, rows[len(rows)-1].Key); err != nil {
			return err
		}
	}
	arm.WriteJSON(w, http.StatusOK, page)
	return nil
}
