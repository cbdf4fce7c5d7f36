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
	back := func(
		v *store.View, c flexnode.Cluster, old store.Row[flexnode.Node], kept flexnode.History,
	) (flexnode.Decision, error) {
		return p.back(v, c, old.Value, kept, to)
	}
	_, err := a.Store.Update(r.Context(), "node rolled back", p.ahead(),
		func(v *store.View) error { return p.decide(v, back) })
	if err != nil {
		return err
	}
	r.after = decimal(p.node.Revision)
	return p.answer(w, nil)
}

// back returns the node that a rollback makes.
func (p *put) back(
	v *store.View, c flexnode.Cluster, old flexnode.Node, kept flexnode.History, to int64,
) (flexnode.Decision, error) {
	a := p.api
	ask := flexnode.Rollback{
		By: p.ask.By, ByType: p.ask.ByType, At: p.ask.At, Renderer: p.ask.Renderer,
		To: revisionIn(v, kept, to), Desired: revisionIn(v, kept, old.Revision),
		Joins: p.joins(v, &old), Parent: a.parent(v, c),
		Secret: a.Credentials.Compare(v, p.r.nodeKey(), ""),
	}
	if ask.To == nil {
		return flexnode.Decision{}, notKept(old, to)
	}
	p.repeats = ask.To
	var err error
	if ask.Parent.Defaults, err = a.Store.Layer(v.Context(), ask.To.Defaults); err != nil {
		return flexnode.Decision{}, err
	}
	return flexnode.RollBack(ask, old)
}
