package front

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// What happens to the machines of a cluster's nodes when its registration is deleted.
const (
	releaseNodes = "release" // they keep running, without management
	wipeNodes    = "wipe"    // their agents unbootstrap them
)

// deleteCluster deletes a registration asynchronously: its reconciler does the work. A cluster with
// nodes is not deleted unless the caller chooses what happens to the machines, and confirms the
// number to wipe; dryRun=true only counts.
func (a *API) deleteCluster(r *request) (any, error) {
	nodes := r.query.Get("nodes")
	if nodes != "" && nodes != releaseNodes && nodes != wipeNodes {
		return nil, invalid("The value '%s' of nodes is not one of %s, %s.",
			shorten(nodes), releaseNodes, wipeNodes)
	}
	row, err := a.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err != nil || !row.Exists() {
		return nil, err
	}
	if r.flag("dryRun") {
		return a.dryRun(r, nodes == wipeNodes)
	}
	if nodes == wipeNodes && !row.Value.Deleting() {
		if n := a.count(r.clusterKey()).Nodes; n > 0 && r.query.Get("confirm") != strconv.Itoa(n) {
			return nil, arm.Errorf(409, "ConfirmationNeeded", "The machines of %d flexNodeConfigs would "+
				"be restored. Confirm that number with confirm=%d; dryRun=true only counts.", n, n)
		}
	}
	operation, err := a.markDeletion(r, nodes)
	if err == nil && operation != "" { // else another request was faster
		a.pointTo(r, operation, url.Values{}, true)
	}
	return nil, err
}

// abort ends the deletion of a cluster while nodes are left: these remain unchanged.
func (a *API) abort(r *request) (any, error) {
	return nil, a.change(r, "deletion aborted", func(v *store.View) error {
		row, err := a.registered(v, r)
		switch {
		case err != nil:
			return err
		case !row.Value.Deleting():
			return arm.Errorf(409, "NothingToAbort", "The cluster is not being deleted.")
		case row.Value.Deletion.Emptied:
			return arm.Errorf(409, "TooLateToAbort", "All flexNodeConfigs of the cluster are deleted.")
		}
		if o := a.Store.Operations.Row(v, row.Value.Deletion.Operation); o.Exists() {
			o.Value.State, o.Value.Ended, o.Value.Code = api.Canceled, a.Now().UTC(), "Aborted"
			o.Value.Message = fmt.Sprintf("The deletion was aborted. %d of %d flexNodeConfigs were "+
				"deleted before.", o.Value.Done, o.Value.Total)
			v.Fail(a.Store.Operations.Put(v, o.Key, o.Value))
		}
		row.Value.Deletion = nil
		return a.Store.Clusters.Put(v, row.Key, row.Value)
	})
}

func (a *API) dryRun(r *request, wipe bool) (any, error) {
	credentials, _, err := a.Store.Credentials.List(r.Context(), r.clusterKey()+"/")
	found := a.count(r.clusterKey())
	found.DryRun, found.Wipe = true, wipe
	for _, row := range credentials {
		if row.Value.State != store.Revoking {
			found.Credentials++
		}
	}
	return found, err
}

// markDeletion writes that a registration is being deleted, and returns the operation; the previous
// one if it is being deleted already, "" if it is gone. With no choice for its nodes it must have
// none: a concurrent write of a node depends on the row that is written here.
func (a *API) markDeletion(r *request, nodes string) (operation string, err error) {
	id := uuid.NewString()
	err = a.change(r, "cluster marked", func(v *store.View) error {
		row := a.Store.Clusters.Row(v, r.clusterKey())
		if operation = ""; !row.Exists() {
			return nil
		}
		if d := row.Value.Deletion; d != nil {
			if nodes != "" && (nodes == wipeNodes) != d.Wipe {
				return arm.Errorf(409, "Conflict", "The cluster is already being deleted in the other way; "+
					"POST abort, while nodes are left, before nodes=%s.", nodes)
			}
			operation = d.Operation
			return nil
		}
		if err := r.preconditions(flexnode.ShownCluster(row.Value).ETag); err != nil {
			return err
		}
		if nodes == "" && !a.Store.Nodes.None(v, r.clusterKey()+"/") {
			found := a.count(r.clusterKey())
			return arm.Errorf(409, "ClusterHasNodes", "The cluster has %d flexNodeConfigs, %d of which "+
				"have joined. Delete them first, or choose what happens to their machines: with "+
				"nodes=%s they keep running unmanaged, with nodes=%s their agents restore them. "+
				"dryRun=true only counts.", max(1, found.Nodes), // the index may be behind
				found.Joined, releaseNodes, wipeNodes)
		}
		operation = r.subscriptionKey() + "/" + id
		v.Fail(a.lately(r, fair.Clusters)) // its row stays after an abort
		r.before = row.Value.Version
		return a.beginDeletion(v, row, operation, nodes == wipeNodes, r.caller.ObjectID)
	})
	return operation, err
}

func (a *API) beginDeletion(
	v *store.View, row store.Row[flexnode.Cluster], operation string, wipe bool, by string,
) error {
	now := a.Now().UTC()
	v.Fail(a.Store.Operations.Set(v, operation, flexnode.Operation{
		Target: row.Value.ID, Kind: deleteClusterKind, State: inProgress, Started: now, By: by,
		Total: a.count(row.Key).Nodes,
	}))
	row.Value.Deletion = &flexnode.Deletion{Operation: operation, Wipe: wipe, Since: now, By: by}
	return a.Store.Clusters.Put(v, row.Key, row.Value)
}

func (a *API) count(cluster string) (found api.DeletionCounts) {
	a.Index.EachNode(cluster+"/", func(key string, hasStatus bool) {
		found.Nodes++
		if hasStatus || !a.Seen.Last(key).IsZero() {
			found.Joined++
		}
	})
	return found
}
