package rp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// getCluster answers GET of a target cluster.
func (s *Server) getCluster(w http.ResponseWriter, r *request) error {
	row, err := s.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err != nil {
		return err
	}
	if !row.Exists() {
		return arm.Errorf(404, "ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found.", clusterType, r.names["cluster"], r.names["group"])
	}
	writeCluster(w, http.StatusOK, row.Value)
	return nil
}

func writeCluster(w http.ResponseWriter, status int, c store.Cluster) {
	shown := showCluster(c)
	w.Header().Set("ETag", shown.ETag)
	arm.WriteJSON(w, status, shown)
}

func showCluster(c store.Cluster) api.ManagedCluster {
	id, _ := arm.Parse(c.ID)
	system := c.SystemData
	shown := api.ManagedCluster{ID: c.ID, Name: id.Name(), Type: clusterType, Location: c.Location, Tags: c.Tags, ETag: `"` + c.Version + `"`, SystemData: &system, Properties: c.Properties}
	if shown.Properties.ProvisioningState == "" {
		shown.Properties.ProvisioningState = api.Succeeded
		if c.Facts == "" {
			shown.Properties.ProvisioningState = api.Creating
		}
	}
	return shown
}

// listClusters answers the clusters of a subscription or resource group.
func (s *Server) listClusters(w http.ResponseWriter, r *request) error {
	prefix := strings.ToLower(r.names["subscription"]) + "/"
	if group := r.names["group"]; group != "" {
		prefix += strings.ToLower(group) + "/"
	}
	after, size, err := s.page(r, prefix)
	if err != nil {
		return err
	}
	rows, more, err := s.Index.Clusters(prefix, after, size)
	if err != nil {
		return err
	}
	page := api.List[api.ManagedCluster]{Value: []api.ManagedCluster{}}
	for _, row := range rows {
		page.Value = append(page.Value, showCluster(row.Value))
	}
	if more {
		if page.NextLink, err = s.nextLink(r, prefix, rows[len(rows)-1].Key); err != nil {
			return err
		}
	}
	arm.WriteJSON(w, http.StatusOK, page)
	return nil
}

// putCluster registers a target cluster and looks whether it can be reached. One that cannot is registered all the same.
func (s *Server) putCluster(w http.ResponseWriter, r *request) error {
	var body api.ManagedCluster
	if err := decode(r.body, &body); err != nil {
		return err
	}
	ctx := r.Context()
	for range tries {
		old, err := s.Store.Clusters.Get(ctx, r.clusterKey())
		if err != nil {
			return err
		}
		etag := ""
		if old.Exists() {
			etag = showCluster(old.Value).ETag
		}
		if err := r.preconditions(etag); err != nil {
			return err
		}
		if problems := checkCluster(body, old); len(problems) > 0 {
			return refuse(problems)
		}
		next := store.Cluster{ID: r.resourceID(), Location: body.Location, Tags: body.Tags, Properties: body.Properties, Facts: old.Value.Facts, SystemData: s.touch(old.Value.SystemData, r.caller)}
		next.Properties.ProvisioningState = ""
		next.Properties.KubernetesVersion, next.Properties.Reachable = old.Value.Properties.KubernetesVersion, old.Value.Properties.Reachable
		next.Version = s.nextVersion(old.Value.Version)
		txn := s.Store.Txn()
		s.Store.Clusters.Put(txn, old, next)
		if _, err := s.commit(ctx, "cluster written", txn); errors.Is(err, store.ErrConflict) {
			continue
		} else if err != nil {
			return err
		}
		r.before, r.after = old.Value.Version, next.Version
		return s.answerCluster(w, r, old.Exists())
	}
	return busy()
}

func (s *Server) answerCluster(w http.ResponseWriter, r *request, existed bool) error {
	wait, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := s.probe(wait, r.clusterKey()); err != nil {
		s.Log.Warn("a cluster is registered and cannot be reached yet", "cluster", r.clusterKey(), "error", err)
	}
	row, err := s.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err != nil {
		return err
	}
	status := http.StatusOK
	if !existed {
		status = http.StatusCreated
	}
	writeCluster(w, status, row.Value)
	return nil
}

// checkCluster checks what a caller says of a cluster.
func checkCluster(c api.ManagedCluster, old store.Row[store.Cluster]) []problem {
	var problems []problem
	add := func(target, format string, args ...any) {
		problems = append(problems, problem{target, fmt.Sprintf(format, args...)})
	}
	p := c.Properties
	if !matches(`[A-Za-z0-9][A-Za-z0-9 ]{0,62}`, c.Location) {
		add("location", "The location '%s' is not an Azure region, such as westeurope.", shorten(c.Location))
	}
	if p.Kubeconfig != "" && !matches(`[A-Za-z0-9][A-Za-z0-9._-]{0,252}`, p.Kubeconfig) {
		add("properties.kubeconfig", "This names a file in the provider's directory of kubeconfigs: letters, digits, '.', '_' and '-'.")
	}
	if p.ServerURL != "" && !matches(`https://[A-Za-z0-9.:\[\]-]+/?`, p.ServerURL) {
		add("properties.serverUrl", "This is not an https URL of a host, perhaps with a port.")
	}
	if _, err := netip.ParseAddr(p.DNSServiceIP); p.DNSServiceIP != "" && err != nil {
		add("properties.dnsServiceIP", "This is not an IP address.")
	}
	if p.PodCIDR != "" || p.NodeCIDRMask != 0 {
		network, err := netip.ParsePrefix(p.PodCIDR)
		switch {
		case err != nil || network != network.Masked():
			add("properties.podCidr", "This is not a network in CIDR notation, such as 10.244.0.0/16.")
		case p.NodeCIDRMask < network.Bits() || p.NodeCIDRMask > network.Addr().BitLen()-2 || p.NodeCIDRMask-network.Bits() > 24:
			add("properties.nodeCidrMask", "The mask of a node's subnet is between %d, that of podCidr, and %d.", network.Bits(), min(network.Addr().BitLen()-2, network.Bits()+24))
		}
	}
	if was := old.Value.Properties; was.PodCIDR != "" && (was.PodCIDR != p.PodCIDR || was.NodeCIDRMask != p.NodeCIDRMask) {
		problems = append(problems, problem{"properties.podCidr", "The pod network cannot be changed: nodes have subnets of it. (PropertyChangeNotAllowed)"})
	}
	return problems
}

// deleteCluster takes a cluster out of the provider, and its nodes before it.
func (s *Server) deleteCluster(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	cluster, err := s.Store.Clusters.Get(ctx, r.clusterKey())
	if err != nil {
		return err
	}
	if !cluster.Exists() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err := r.preconditions(showCluster(cluster.Value).ETag); err != nil {
		return err
	}
	for range tries {
		if err := s.emptyCluster(ctx, r.clusterKey()); err != nil {
			return err
		}
		if cluster, err = s.Store.Clusters.Get(ctx, r.clusterKey()); err != nil {
			return err
		}
		left, err := s.Store.Nodes.List(ctx, r.clusterKey()+"/")
		if err != nil {
			return err
		}
		if len(left) > 0 { // written meanwhile
			continue
		}
		txn := s.Store.Txn()
		s.Store.Clusters.Delete(txn, cluster) // a node that is written now depends on this row
		if _, err := s.commit(ctx, "cluster deleted", txn); err == nil {
			w.WriteHeader(http.StatusOK)
			return nil
		} else if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return busy()
}

// emptyCluster deletes the nodes of a cluster.
func (s *Server) emptyCluster(ctx context.Context, key string) error {
	nodes, err := s.Store.Nodes.List(ctx, key+"/")
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if _, _, err := s.remove(ctx, node); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}
