package front

import (
	"errors"
	"reflect"
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// reportStatus stores an agent's report. It does not touch the desired configuration.
func (a *API) reportStatus(r *request) (any, error) {
	report, err := flexnode.ReadReport(r.body)
	if err != nil {
		return nil, err
	}
	key := r.nodeKey()
	decide := func(v *store.View, _ flexnode.Node) error {
		status := a.Store.Status.Row(v, key)
		if status.Exists() && reflect.DeepEqual(status.Value.Report, report) {
			return nil
		}
		next := status.Value
		if r.caller.isMachine() {
			if !next.Follows(r.caller.Signed, a.Now()) {
				return arm.Errorf(409, "ReportOutOfOrder", "A newer report has already been accepted.")
			}
			next.Signed, next.Taken = r.caller.Signed.UTC(), a.Now().UTC().Truncate(time.Second)
		}
		next.Report = report
		return a.Store.Status.Put(v, key, next)
	}
	// A node that is being deleted gets no status.
	node, err := a.byAgent(r, "status written", []string{a.Store.Status.Key(key)}, decide)
	if err != nil {
		return nil, err
	}
	poll := pollOf(node)
	if failed := (flexnode.Status{Report: report}).Failed(); failed != 0 &&
		failed == node.Revision { // it goes back, perhaps to a former identity
		poll.Former, poll.Joining = "", false
	}
	a.heard(r, poll)
	return nil, nil
}

// beginChange answers the agent of a node that asks whether it may restart or drain for its
// configuration (flexnode.Node.Begin). It is one write of the node's row, or none.
func (a *API) beginChange(r *request, ask api.BeginChange) (any, error) {
	version, err := strconv.ParseInt(ask.ConfigVersion, 10, 64)
	if err != nil || version <= 0 {
		return nil, invalid("The value '%s' of configVersion is not the version of a configuration.",
			shorten(ask.ConfigVersion))
	}
	var answer api.ChangeBegun
	key := r.nodeKey()
	ahead := []string{a.Store.History.Key(key), a.Store.Status.Key(key),
		a.Store.Clusters.Key(r.clusterKey()), a.Store.Rollouts.Key(r.clusterKey())}
	decide := func(v *store.View, n flexnode.Node) error {
		b, err := a.beginning(v, r, n)
		if err != nil {
			return err
		}
		b.Asked = version
		var next flexnode.Node
		next, answer = n.Begin(b)
		return a.Store.Nodes.Replace(v, key, n, next)
	}
	node, err := a.byAgent(r, "change begun", ahead, decide)
	if err != nil {
		return nil, err
	}
	a.heard(r, pollOf(node))
	if answer.Hold == "" {
		r.after = flexnode.ShownVersion(version)
	}
	return answer, nil
}

// byAgent makes a change that a node's agent requests, and returns the previous node.
func (a *API) byAgent(
	r *request, what string, ahead []string, decide func(*store.View, flexnode.Node) error,
) (n flexnode.Node, err error) {
	ahead = append(ahead, a.Store.Nodes.Key(r.nodeKey()))
	_, err = a.Store.Update(r.Context(), what, ahead, func(v *store.View) (err error) {
		if n, err = a.nodeIn(v, r); err != nil {
			return err
		}
		if err := a.mayHave(r, n); err != nil {
			return err
		}
		return decide(v, n)
	})
	return n, err
}

// beginning reads the arguments of Node.Begin. The write depends on all these rows.
func (a *API) beginning(v *store.View, r *request, n flexnode.Node) (flexnode.Beginning, error) {
	cluster := a.Store.Clusters.Row(v, r.clusterKey()).Value
	history := a.Store.History.Row(v, r.nodeKey()).Value
	b := flexnode.Beginning{
		Now: a.Now().UTC(), Rollout: a.Store.Rollouts.Row(v, r.clusterKey()).Value,
		Applied: a.Store.Status.Row(v, r.nodeKey()).Value.Applied(),
	}
	b.Policy, _ = flexnode.ReadPolicy(cluster.Properties.RolloutPolicy) // it was checked
	from, err := a.Store.Kept(v.Context(), history, b.Applied)
	to, err2 := a.Store.Kept(v.Context(), history, n.Revision)
	if err := errors.Join(err, err2); err != nil {
		return b, err
	}
	b.Change = flexnode.ChangeOf(from, to)
	b.Lasts, err = flexnode.Lasts(to)
	return b, err
}
