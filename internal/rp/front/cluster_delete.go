package front

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// What becomes of the machines of a cluster's nodes when its registration is deleted.
const (
	releaseNodes = "release" // they run on, and are not managed any more
	wipeNodes    = "wipe"    // their agents receive the order to give them back
)

// deleteCluster deletes the registration of a cluster, asynchronously: its reconciler removes what
// belongs to it. One that has nodes is refused, unless the caller says what becomes of their
// machines, and confirms the number of those that are given back; dryRun=true tells the counts and
// changes nothing.
func (a *API) deleteCluster(w http.ResponseWriter, r *request) error {
	nodes := r.query.Get("nodes")
	if nodes != "" && nodes != releaseNodes && nodes != wipeNodes {
		return invalid("The value '%s' of nodes is not one of %s, %s.",
			shorten(nodes), releaseNodes, wipeNodes)
	}
	row, err := a.Store.Clusters.Get(r.Context(), r.clusterKey())
	if err != nil {
		return err
	}
	if !row.Exists() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.flag("dryRun") {
		return a.dryRun(w, r, nodes == wipeNodes)
	}
	if nodes == wipeNodes && !row.Value.Deleting() {
		if err := a.confirmed(r); err != nil {
			return err
		}
	}
	operation, err := a.markDeletion(r, nodes)
	if err != nil {
		return err
	}
	if operation == "" { // another request was faster
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	a.pointTo(w, r, operation, true)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// confirmed is an error unless the caller has confirmed how many machines are given back.
func (a *API) confirmed(r *request) error {
	n := a.count(r.clusterKey()).Nodes
	if n == 0 || r.query.Get("confirm") == strconv.Itoa(n) {
		return nil
	}
	return arm.Errorf(409, "ConfirmationNeeded", "The machines of %d flexNodeConfigs would be given "+
		"back. Confirm that number with confirm=%d; dryRun=true only counts.", n, n)
}

// abort ends the deletion of a cluster while nodes are left: they remain as they are.
func (a *API) abort(w http.ResponseWriter, r *request) error {
	_, err := a.Store.Update(r.Context(), "deletion aborted", nil, func(v *store.View) error {
		row, err := a.registered(v, r)
		switch {
		case err != nil:
			return err
		case !row.Value.Deleting():
			return arm.Errorf(409, "NothingToAbort", "The cluster is not being deleted.")
		case row.Value.Deletion.Emptied:
			return arm.Errorf(409, "TooLateToAbort", "All flexNodeConfigs of the cluster are deleted.")
		}
		o := a.Store.Operations.Row(v, row.Value.Deletion.Operation)
		if o.Exists() {
			o.Value.State, o.Value.Ended, o.Value.Code = api.Canceled, a.Now().UTC(), "Aborted"
			o.Value.Message = fmt.Sprintf("The deletion was aborted. %d of %d flexNodeConfigs were "+
				"deleted before.", o.Value.Done, o.Value.Total)
			if err := a.Store.Operations.Put(v, o.Key, o.Value); err != nil {
				return err
			}
		}
		row.Value.Deletion = nil
		return a.Store.Clusters.Put(v, row.Key, row.Value)
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// dryRun tells what would be deleted with a registration.
func (a *API) dryRun(w http.ResponseWriter, r *request, wipe bool) error {
	credentials, _, err := a.Store.Credentials.List(r.Context(), r.clusterKey()+"/")
	if err != nil {
		return err
	}
	found := a.count(r.clusterKey())
	found.DryRun, found.Wipe = true, wipe
	for _, row := range credentials {
		if row.Value.State != store.Revoking {
			found.Credentials++
		}
	}
	arm.WriteJSON(w, http.StatusOK, found)
	return nil
}

// hasNodes tells a caller that a registration has nodes, of which he has not said what becomes.
func (a *API) hasNodes(clusterKey string) error {
	found := a.count(clusterKey)
	return arm.Errorf(409, "ClusterHasNodes",
		"The cluster has %d flexNodeConfigs, %d of which have joined. Delete them first, or "+
			"say what becomes of their machines: nodes=%s has them run on unmanaged, "+
			"nodes=%s has their agents give them back. dryRun=true only counts.",
		max(1, found.Nodes), found.Joined, releaseNodes, wipeNodes) // the index may be behind
}

// markDeletion writes that a registration is being deleted, and returns the operation; the previous
// one if it is being deleted already, "" if it is gone. Without a word on its nodes it must have
// none: a node that is written at the same time depends on the row that is written here.
func (a *API) markDeletion(r *request, nodes string) (string, error) {
	id := uuid.NewString()
	var operation string
	ahead := []string{a.Store.Clusters.Key(r.clusterKey())}
	_, err := a.Store.Update(r.Context(), "cluster marked", ahead, func(v *store.View) error {
		operation = ""
		row := a.Store.Clusters.Row(v, r.clusterKey())
		if !row.Exists() {
			return nil
		}
		if d := row.Value.Deletion; d != nil {
			if nodes == wipeNodes && !d.Wipe {
				return arm.Errorf(409, "Conflict", "The cluster is being deleted already, and its "+
					"nodes are released: that cannot be changed to nodes=%s.", wipeNodes)
			}
			operation = d.Operation
			return nil
		}
		if err := r.preconditions(flexnode.ShownCluster(row.Value).ETag); err != nil {
			return err
		}
		if nodes == "" {
			none, err := a.Store.Nodes.None(v, r.clusterKey()+"/")
			if err != nil {
				return err
			}
			if !none {
				return a.hasNodes(r.clusterKey())
			}
		}
		operation = r.subscriptionKey() + "/" + id
		r.before = row.Value.Version
		return a.beginDeletion(v, row, operation, nodes == wipeNodes, r.caller.ObjectID)
	})
	return operation, err
}

// beginDeletion writes that a registration is being deleted from now on.
func (a *API) beginDeletion(
	v *store.View, row store.Row[flexnode.Cluster], operation string, wipe bool, by string,
) error {
	now := a.Now().UTC()
	err := a.Store.Operations.Set(v, operation, flexnode.Operation{
		Target: row.Value.ID, Kind: deleteClusterKind, State: inProgress, Started: now, By: by,
	})
	if err != nil {
		return err
	}
	row.Value.Deletion = &flexnode.Deletion{Operation: operation, Wipe: wipe, Since: now, By: by}
	return a.Store.Clusters.Put(v, row.Key, row.Value)
}

// count counts the nodes of a cluster in the index.
func (a *API) count(clusterKey string) api.DeletionCounts {
	var found api.DeletionCounts
	a.Index.EachNode(clusterKey+"/", func(key string, hasStatus bool) {
		found.Nodes++
		if hasStatus || !a.Seen.Last(key).IsZero() {
			found.Joined++
		}
	})
	return found
}
