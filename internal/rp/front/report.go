package front

import (
	"net/http"
	"reflect"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// reportStatus takes what an agent says of its node. It does not touch the desired configuration.
func (a *API) reportStatus(w http.ResponseWriter, r *request) error {
	report, err := flexnode.ReadReport(r.body)
	if err != nil {
		return err
	}
	uid, err := r.uid()
	if err != nil {
		return err
	}
	var node store.Row[flexnode.Node]
	var offered flexnode.Node
	key := r.nodeKey()
	ahead := []string{a.Store.Nodes.Key(key), a.Store.Status.Key(key)}
	_, err = a.Store.Update(r.Context(), "status written", ahead, func(v *store.View) error {
		var err error
		offered = flexnode.Node{}
		// A node that is being deleted gets no status.
		if node, err = a.Store.Nodes.In(v, key); err != nil || !node.Exists() {
			return err
		}
		status, err := a.Store.Status.In(v, key)
		if err != nil || !named(uid, node.Value.UID) {
			return err
		}
		if err := a.mayHave(r, node.Value); err != nil {
			return err
		}
		if status.Exists() && reflect.DeepEqual(status.Value.Report, report) {
			return nil
		}
		next := status.Value
		next.Report = report
		if err := a.Store.Status.Put(v, key, next); err != nil {
			return err
		}
		offered, err = a.offer(v, r, node.Value, report)
		return err
	})
	if err != nil {
		return err
	}
	if !node.Exists() || !named(uid, node.Value.UID) {
		return a.notFound(r, uid)
	}
	poll := pollOf(node.Value)
	if offered.Failed != node.Value.Failed { // it goes back, perhaps to a former identity
		poll.Former, poll.Joining = "", false
	}
	a.heard(r, uid, poll)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// isBehind tells, by the index, whether a node is offered what others have failed and runs something
// else: it may have something to go back to.
func (a *API) isBehind(r *request, n flexnode.Node, applied int64) bool {
	if applied == 0 || applied == n.Assigned || n.Assigned != n.Revision {
		return false
	}
	cluster, err := a.Index.Cluster(r.clusterKey())
	return err == nil && cluster.Value.Failures.Hold(n.Chosen.Versions)
}

// offer decides after a report which revision the node is offered, and has its cluster remember
// versions that have failed. Mostly nothing is read for it.
func (a *API) offer(
	v *store.View, r *request, n flexnode.Node, report api.Report,
) (flexnode.Node, error) {
	applied, _, failed := flexnode.Status{Report: report}.Versions()
	news := failed == n.Revision && n.Failed != failed || // it has failed
		applied == n.Revision && (n.Assigned != applied || n.Failed == applied) || // it runs all the same
		a.isBehind(r, n, applied)
	if n.Revision == 0 || !news {
		return n, nil
	}
	cluster, err := a.Store.Clusters.In(v, r.clusterKey())
	if err != nil {
		return n, err
	}
	history, err := a.Store.History.In(v, r.nodeKey())
	if err != nil {
		return n, err
	}
	parent, err := a.parent(v.Context(), cluster.Value)
	if err != nil {
		return n, err
	}
	c := cluster.Value
	s := flexnode.Standing{Node: n, History: history.Value, Failures: c.Failures,
		Tenant: parent.Tenant()}
	next, versions, err := s.Report(report)
	if err != nil {
		return n, err
	}
	if versions != nil && cluster.Exists() && !a.isLeaving(c) {
		all := c.Failures.With(*versions, n.UID, a.Now())
		if !reflect.DeepEqual(all, c.Failures) {
			c.Failures = all
			if err := a.Store.Clusters.Put(v, r.clusterKey(), c); err != nil {
				return n, err
			}
		}
	}
	r.before, r.after = decimal(n.Assigned), decimal(next.Assigned)
	if reflect.DeepEqual(next, n) {
		return next, nil
	}
	return next, a.Store.Nodes.Put(v, r.nodeKey(), next)
}
