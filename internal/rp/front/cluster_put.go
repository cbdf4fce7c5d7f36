package front

import (
	"cmp"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Kubeconfigs tells which kubeconfigs clusters may name: the operator has bound each to one
// cluster.
type Kubeconfigs interface {
	// Check is an error unless the cluster with an id may name a kubeconfig.
	Check(clusterID, kubeconfig string) error
	// Endpoint names the API server of a cluster's kubeconfig as flexnode.Cluster.Endpoint does; ""
	// if the kubeconfig does not tell. It makes no request.
	Endpoint(clusterID, kubeconfig string) string
}

// putCluster registers a target cluster. Its reconciler tries to reach it; until it has, the
// registration is Creating. An equal PUT changes nothing.
func (a *API) putCluster(w http.ResponseWriter, r *request) error {
	var body api.ManagedCluster
	if err := flexnode.Decode(r.body, &body); err != nil {
		return err
	}
	if problems := flexnode.CheckTags(body.Tags); len(problems) > 0 {
		return problems
	}
	if err := a.Kubeconfigs.Check(r.resourceID(), body.Properties.Kubeconfig); err != nil {
		a.Log.Warn("a cluster names a kubeconfig that is not bound to it", "cluster",
			r.clusterKey(), "request", r.id, "error", err)
		return arm.Errorf(403, "KubeconfigNotBound",
			"The kubeconfig '%s' is not bound to this cluster. Ask the operator of the provider "+
				"to bind it in the provider's settings.", shorten(body.Properties.Kubeconfig))
	}
	var created bool
	uid := uuid.NewString()
	ahead := []string{
		a.Store.Clusters.Key(r.clusterKey()), a.Store.Subscriptions.Key(r.subscriptionKey()),
	}
	q := quota{api: a, r: r, key: r.clusterKey()}
	write := func(v *store.View) error {
		old := a.Store.Clusters.Row(v, r.clusterKey())
		if created = !old.Exists(); created {
			if err := q.need(fair.Clusters); err != nil {
				return err
			}
		}
		return a.writeCluster(v, r, body, old, uid)
	}
	revision, err := a.Store.Update(r.Context(), "cluster written", ahead, write)
	q.done(revision, err)
	if err != nil {
		return err
	}
	return a.answerCluster(w, r, created)
}

// writeCluster writes what the owner of a cluster wants of its registration.
func (a *API) writeCluster(
	v *store.View, r *request, body api.ManagedCluster, old store.Row[flexnode.Cluster], uid string,
) error {
	subscription := a.Store.Subscriptions.Row(v, r.subscriptionKey())
	if err := r.allowedIn(subscription.Value.State); err != nil {
		return err
	}
	etag, before := "", (*flexnode.Cluster)(nil)
	if old.Exists() {
		etag, before = flexnode.ShownCluster(old.Value).ETag, &old.Value
		if old.Value.Deleting() {
			return leaving(r)
		}
	}
	if err := r.preconditions(etag); err != nil {
		return err
	}
	if problems := flexnode.CheckCluster(body, before); len(problems) > 0 {
		return problems
	}
	next := wanted(old.Value, body, r.resourceID())
	r.before, r.after = old.Value.Version, old.Value.Version
	if old.Exists() && sameCluster(old.Value, next) {
		return nil
	}
	if !old.Exists() || old.Value.Properties.Kubeconfig != next.Properties.Kubeconfig {
		if err := a.ownEndpoint(v, r, next); err != nil {
			return err
		}
	}
	previous, _ := strconv.ParseInt(old.Value.Version, 10, 64) // "" for a new one
	next.Version = decimal(flexnode.NextVersion(previous, a.Now()))
	next.SystemData = flexnode.Touched(old.Value.SystemData, r.caller.Name, r.caller.Type, a.Now())
	next.UID = cmp.Or(next.UID, uid)
	r.after = next.Version
	return a.Store.Clusters.Put(v, r.clusterKey(), next)
}

// ownEndpoint refuses a registration whose kubeconfig is of an API server that another one has
// reached and still reaches. It knows only what rows say: the rest is found by the probe.
func (a *API) ownEndpoint(v *store.View, r *request, c flexnode.Cluster) error {
	endpoint := a.Kubeconfigs.Endpoint(r.resourceID(), c.Properties.Kubeconfig)
	if endpoint == "" {
		return nil
	}
	holder := a.Store.Endpoints.Row(v, endpoint)
	if !holder.Exists() || holder.Value == r.clusterKey() {
		return nil
	}
	other := a.Store.Clusters.Row(v, holder.Value)
	if other.Value.Endpoint != endpoint || other.Value.Deleting() ||
		!other.Value.Properties.Reachable {
		return nil
	}
	return arm.Errorf(409, "APIServerIsRegistered",
		"The API server of the cluster belongs to another registration already. Delete that one, or "+
			"have the operator of the provider correct the kubeconfig.")
}

// wanted returns a registration with its owner's present settings. Nodes receive its id and
// location, so that these remain as they were written first: another way to write them is no
// change.
func wanted(c flexnode.Cluster, body api.ManagedCluster, id string) flexnode.Cluster {
	said := c.Properties
	c.ID = cmp.Or(c.ID, id)
	if location := region(body.Location); region(c.Location) != location {
		c.Location = location
	}
	c.Tags, c.Properties = body.Tags, body.Properties
	c.Properties.ProvisioningState = said.ProvisioningState
	c.Properties.KubernetesVersion, c.Properties.Reachable = said.KubernetesVersion, said.Reachable
	c.Properties.Message = "" // which is not stored
	return c
}

// region is the name of an Azure region in the form that Azure uses, without regard to case and
// blanks.
func region(location string) string {
	return strings.ToLower(strings.ReplaceAll(location, " ", ""))
}

func sameCluster(a, b flexnode.Cluster) bool {
	return a.Location == b.Location && reflect.DeepEqual(a.Properties, b.Properties) &&
		maps.Equal(a.Tags, b.Tags)
}

// answerCluster waits until the cluster has been reached, and answers with what it is then.
func (a *API) answerCluster(w http.ResponseWriter, r *request, created bool) error {
	err := a.awaitCluster(r, func(c flexnode.Cluster) bool { return !isCreating(c) })
	if err != nil {
		return err
	}
	row, err := a.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err != nil {
		return err
	}
	if !row.Exists() {
		return noCluster(r)
	}
	if isCreating(row.Value) {
		target := flexnode.Operation{Target: row.Value.ID, UID: row.Value.UID}
		if err := a.accept(w, r, putClusterKind, target, false); err != nil {
			return err
		}
	}
	shown := flexnode.ShownCluster(row.Value)
	writeResource(w, created, shown.ETag, shown)
	return nil
}

func isCreating(c flexnode.Cluster) bool {
	return flexnode.ShownCluster(c).Properties.ProvisioningState == api.Creating
}
