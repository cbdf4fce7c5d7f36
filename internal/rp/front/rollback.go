package front

import (
	"net/http"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// rollBack has a node be again as a revision of it was. What a machine could have joined with is
// revoked, as by every change.
func (a *API) rollBack(w http.ResponseWriter, r *request) error {
	var ask api.RollbackRequest
	if err := flexnode.Decode(r.body, &ask); err != nil {
		return err
	}
	to, problems := flexnode.ReadRollback(ask)
	if len(problems) > 0 {
		return problems
	}
	p := &put{api: a, r: r, ask: flexnode.Put{
		ID: r.resourceID(), By: r.caller.Name, ByType: r.caller.Type, At: a.Now(),
		Renderer: a.Renderer,
	}}
	_, err := a.Store.Update(r.Context(), "node rolled back", p.ahead(),
		func(v *store.View) error { return p.rollBack(v, to) })
	if err != nil {
		return err
	}
	r.after = decimal(p.node.Revision)
	return p.answer(w, nil)
}

// rollBack decides within a view and writes there.
func (p *put) rollBack(v *store.View, to int64) error {
	a := p.api
	cluster, old, err := a.openNode(v, p.r)
	if err != nil {
		return err
	}
	history, err := a.Store.History.In(v, p.r.nodeKey())
	if err != nil {
		return err
	}
	ask, err := p.rollbackOf(v, cluster, old.Value, history.Value, to)
	if err != nil {
		return err
	}
	d, err := flexnode.RollBack(ask, old.Value)
	if err != nil {
		return err
	}
	p.node, p.r.before = d.Node, decimal(old.Value.Revision)
	if err := p.show(history.Value, d); err != nil {
		return err
	}
	return p.write(v, history.Value, d)
}

// rollbackOf is what a decision on a rollback needs.
func (p *put) rollbackOf(
	v *store.View, cluster flexnode.Cluster, old flexnode.Node, history flexnode.History, to int64,
) (ask flexnode.Rollback, err error) {
	a := p.api
	ask = flexnode.Rollback{
		By: p.ask.By, ByType: p.ask.ByType, At: p.ask.At, Renderer: p.ask.Renderer,
	}
	if ask.To, err = history.Find(to); err != nil {
		return ask, err
	}
	if ask.To == nil {
		return ask, notKept(old, to)
	}
	if ask.Desired, err = history.Find(old.Revision); err != nil {
		return ask, err
	}
	if ask.Joins, err = p.joins(&old); err != nil {
		return ask, err
	}
	if ask.Parent, err = a.parent(v.Context(), cluster); err != nil {
		return ask, err
	}
	if ask.Parent.Defaults, err = a.Store.Layer(v.Context(), ask.To.Defaults); err != nil {
		return ask, err
	}
	ask.Secret, err = a.Credentials.Compare(v, p.r.nodeKey(), "")
	return ask, err
}
