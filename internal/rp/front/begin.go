package front

import (
	"net/http"
	"reflect"
	"strconv"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// beginChange answers the agent of a node that asks whether it may restart or drain for its
// configuration (flexnode.Node.Begin). It is one write of the node's row, or none.
func (a *API) beginChange(w http.ResponseWriter, r *request) error {
	var ask api.BeginChange
	if err := flexnode.DecodeLenient(r.body, &ask); err != nil {
		return err
	}
	version, err := strconv.ParseInt(ask.ConfigVersion, 10, 64)
	if err != nil || version <= 0 {
		return invalid("The value '%s' of configVersion is not the version of a configuration.",
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
		next, said := n.Begin(b)
		if answer = said; reflect.DeepEqual(next, n) {
			return nil
		}
		return a.Store.Nodes.Put(v, key, next)
	}
	node, err := a.byAgent(r, "change begun", ahead, decide)
	if err != nil {
		return err
	}
	a.heard(r, pollOf(node))
	if answer.Hold == "" {
		r.after = decimal(version)
	}
	arm.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// byAgent makes a change that a node's agent asks for, and returns the node as it was.
func (a *API) byAgent(
	r *request, what string, ahead []string, decide func(*store.View, flexnode.Node) error,
) (n flexnode.Node, err error) {
	ahead = append(ahead, a.Store.Nodes.Key(r.nodeKey()))
	_, err = a.Store.Update(r.Context(), what, ahead, func(v *store.View) error {
		row := a.Store.Nodes.Row(v, r.nodeKey())
		if n = row.Value; !row.Exists() || !named(r.uid, n.UID) {
			return a.notFound(r)
		}
		if err := a.mayHave(r, n); err != nil {
			return err
		}
		return decide(v, n)
	})
	return n, err
}

// beginning reads what the answer depends on. The write depends on all of it.
func (a *API) beginning(
	v *store.View, r *request, n flexnode.Node,
) (b flexnode.Beginning, err error) {
	cluster := a.Store.Clusters.Row(v, r.clusterKey()).Value
	history := a.Store.History.Row(v, r.nodeKey()).Value
	b.Now, b.Rollout = a.Now().UTC(), a.Store.Rollouts.Row(v, r.clusterKey()).Value
	b.Policy, _ = flexnode.ReadPolicy(cluster.Properties.RolloutPolicy) // it was checked
	b.Applied = a.Store.Status.Row(v, r.nodeKey()).Value.Applied()
	from, err := a.Store.Kept(v.Context(), history, b.Applied)
	if err != nil {
		return b, err
	}
	to, err := a.Store.Kept(v.Context(), history, n.Revision)
	if err != nil {
		return b, err
	}
	b.Change = flexnode.ChangeOf(from, to)
	b.Lasts, err = flexnode.Lasts(to)
	return b, err
}
