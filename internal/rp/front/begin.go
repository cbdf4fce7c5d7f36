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
	uid, err := r.uid()
	if err != nil {
		return err
	}
	var node store.Row[flexnode.Node]
	var answer api.ChangeBegun
	key := r.nodeKey()
	ahead := []string{a.Store.Nodes.Key(key), a.Store.History.Key(key), a.Store.Status.Key(key),
		a.Store.Clusters.Key(r.clusterKey()), a.Store.Rollouts.Key(r.clusterKey())}
	_, err = a.Store.Update(r.Context(), "change begun", ahead, func(v *store.View) error {
		var err error
		if node, err = a.Store.Nodes.In(v, key); err != nil || !node.Exists() ||
			!named(uid, node.Value.UID) {
			return err
		}
		if err := a.mayHave(r, node.Value); err != nil {
			return err
		}
		b, err := a.beginning(v, r, node.Value)
		if err != nil {
			return err
		}
		b.Asked = version
		next, said := node.Value.Begin(b)
		if answer = said; reflect.DeepEqual(next, node.Value) {
			return nil
		}
		return a.Store.Nodes.Put(v, key, next)
	})
	if err != nil {
		return err
	}
	if !node.Exists() || !named(uid, node.Value.UID) {
		return a.notFound(r, uid)
	}
	a.heard(r, uid, pollOf(node.Value))
	if answer.Hold == "" {
		r.after = decimal(version)
	}
	arm.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// beginning reads what the answer depends on. The write depends on all of it.
func (a *API) beginning(
	v *store.View, r *request, n flexnode.Node,
) (b flexnode.Beginning, err error) {
	status, err := a.Store.Status.In(v, r.nodeKey())
	if err != nil {
		return b, err
	}
	cluster, err := a.Store.Clusters.In(v, r.clusterKey())
	if err != nil {
		return b, err
	}
	states, err := a.Store.Rollouts.In(v, r.clusterKey())
	if err != nil {
		return b, err
	}
	history, err := a.Store.History.In(v, r.nodeKey())
	if err != nil {
		return b, err
	}
	b.Now, b.Rollout = a.Now().UTC(), states.Value
	b.Policy, _ = flexnode.ReadPolicy(cluster.Value.Properties.RolloutPolicy) // it was checked
	b.Applied, _, _ = status.Value.Versions()
	of := func(version int64) (map[string]any, error) {
		revision, err := history.Value.Find(version)
		if err != nil || revision == nil {
			return nil, err
		}
		return a.Store.Config(v.Context(), *revision)
	}
	from, err := of(b.Applied)
	if err != nil {
		return b, err
	}
	to, err := of(n.Revision)
	if err != nil {
		return b, err
	}
	b.Change = flexnode.ChangeOf(from, to)
	b.Lasts, err = flexnode.Lasts(to)
	return b, err
}
