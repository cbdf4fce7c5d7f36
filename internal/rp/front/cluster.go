package front

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"strconv"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Kubeconfigs holds the operator's bindings of kubeconfigs to clusters.
type Kubeconfigs interface {
	// Check returns an error unless the cluster with an id may name a kubeconfig.
	Check(clusterID, kubeconfig string) error
}

// putCluster registers a target cluster. Its reconciler tries to reach it; until it has, the
// registration is Creating. An equal PUT changes nothing.
func (a *API) putCluster(r *request, body api.ManagedCluster) (any, error) {
	err := flexnode.CheckIdentity(body.ID, body.Name, body.Type, r.resourceID(), flexnode.ClusterType)
	if err != nil {
		return nil, err
	}
	if problems := flexnode.CheckTags(body.Tags); len(problems) > 0 {
		return nil, problems
	}
	if err := a.Kubeconfigs.Check(r.resourceID(), body.Properties.Kubeconfig); err != nil {
		a.Log.Warn("a cluster names a kubeconfig that is not bound to it", "cluster",
			r.clusterKey(), "request", r.id, "error", err)
		return nil, arm.Errorf(403, "KubeconfigNotBound",
			"The kubeconfig '%s' is not bound to this cluster. Ask the operator of the provider "+
				"to bind it in the provider's settings.", shorten(body.Properties.Kubeconfig))
	}
	var created, corrected bool
	uid := uuid.NewString()
	q := quota{api: a, r: r, key: r.clusterKey()}
	err = q.change("cluster written", nil, func(v *store.View) error {
		old := a.Store.Clusters.Row(v, r.clusterKey())
		corrected = old.Value.Properties.Kubeconfig != body.Properties.Kubeconfig
		if created = !old.Exists(); created {
			if err := q.need(fair.Clusters); err != nil {
				return err
			}
		}
		return a.writeCluster(v, r, body, old, uid)
	})
	if err != nil {
		return nil, err
	}
	return a.answerCluster(r, created, corrected && !created)
}

func (a *API) writeCluster(
	v *store.View, r *request, body api.ManagedCluster, old store.Row[flexnode.Cluster], uid string,
) error {
	if err := r.allowedIn(a.Store.Subscriptions.Row(v, r.subscriptionKey()).Value.State); err != nil {
		return err
	}
	if old.Value.Deleting() {
		return leaving(r)
	}
	etag, before := "", (*flexnode.Cluster)(nil)
	if old.Exists() {
		etag, before = flexnode.ShownCluster(old.Value).ETag, new(old.Value)
	}
	if err := r.preconditions(etag); err != nil {
		return err
	}
	next := wanted(old.Value, body, r.resourceID())
	if !next.SamePool(old.Value) {
		if next.SubnetsEpoch = 0; before != nil && a.Store.PodCIDRs.None(v, r.clusterKey()+"/") {
			before.Properties.PodCIDR = "" // no node has a subnet: it can be changed
		}
	}
	if problems := flexnode.CheckCluster(body, before); len(problems) > 0 {
		return problems
	}
	r.before, r.after = old.Value.Version, old.Value.Version
	if old.Exists() && maps.Equal(next.Tags, old.Value.Tags) &&
		reflect.DeepEqual(next.Properties, old.Value.Properties) {
		return nil
	}
	if was, is := old.Value.Properties, next.Properties; old.Exists() && (is.ServerURL !=
		was.ServerURL || is.DNSServiceIP != was.DNSServiceIP || is.Kubeconfig != was.Kubeconfig) {
		v.Fail(a.lately(r, fair.Clusters)) // its former facts are kept until the next collection
	}
	previous, _ := strconv.ParseInt(old.Value.Version, 10, 64) // "" for a new one
	next.Version = flexnode.ShownVersion(flexnode.NextVersion(previous, a.Now()))
	next.SystemData = flexnode.Touched(old.Value.SystemData, r.caller.Name, r.caller.Type, a.Now())
	next.UID = cmp.Or(next.UID, uid)
	r.after = next.Version
	return a.Store.Clusters.Put(v, r.clusterKey(), next)
}

// wanted returns a registration with its owner's present settings. Another spelling of its id or
// location is no change, since nodes receive both.
func wanted(c flexnode.Cluster, body api.ManagedCluster, id string) flexnode.Cluster {
	said := c.Properties
	c.ID, c.Location = cmp.Or(c.ID, id), cmp.Or(c.Location, flexnode.Region(body.Location))
	c.Tags, c.Properties = body.Tags, flexnode.PropertiesOf(body.Properties)
	c.Properties.ProvisioningState = said.ProvisioningState
	c.Properties.KubernetesVersion, c.Properties.Reachable = said.KubernetesVersion, said.Reachable
	return c
}

// answerCluster waits until the cluster has been reached, and answers with its present state. A
// failed registration is one until its corrected kubeconfig is tried.
func (a *API) answerCluster(r *request, created, corrected bool) (any, error) {
	err := a.awaitCluster(r, func(c flexnode.Cluster) bool {
		state := flexnode.ShownCluster(c).Properties.ProvisioningState
		return state != api.Creating && (state != api.Failed || !corrected)
	})
	if err != nil {
		return nil, err
	}
	c, err := a.storedCluster(r)
	shown := flexnode.ShownCluster(c)
	if err == nil && shown.Properties.ProvisioningState == api.Creating {
		a.accept(r, flexnode.Operation{Kind: putClusterKind, Target: c.ID, UID: c.UID}, false)
	}
	return resource{created, shown.ETag, shown}, err
}

func (a *API) storedCluster(r *request) (flexnode.Cluster, error) {
	row, err := a.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err == nil && !row.Exists() {
		err = noCluster(r)
	}
	return row.Value, err
}

func (a *API) getCluster(r *request) (any, error) {
	c, err := a.storedCluster(r)
	shown := flexnode.ShownCluster(c)
	return resource{false, shown.ETag, shown}, err
}

// listClusters answers with the clusters of a subscription or group. It stops after maxPageBytes.
func (a *API) listClusters(r *request) (any, error) {
	prefix := r.subscriptionKey() + "/"
	if group := r.name("group"); group != "" {
		prefix += arm.Fold(group) + "/"
	}
	after, size, err := a.page(r, prefix)
	if err != nil {
		return nil, err
	}
	page, bytes, last := api.List[json.RawMessage]{Value: []json.RawMessage{}}, 0, ""
	for row, err := range a.Index.Clusters(prefix, after) {
		if len(page.Value) == size || bytes > maxPageBytes {
			page.NextLink = a.nextLink(r, prefix, last)
			break
		}
		if err != nil {
			return nil, err
		}
		shown, err := json.Marshal(flexnode.ShownCluster(row.Value))
		if err != nil {
			return nil, err
		}
		page.Value, bytes, last = append(page.Value, shown), bytes+len(shown), row.Key
	}
	return page, nil
}
