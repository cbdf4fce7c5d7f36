package front

import (
	"cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// kept is a stored node with its kept revisions.
type kept struct {
	node    store.Row[flexnode.Node]
	history flexnode.History
	// applied is the version that its agent reports to run; 0 without a report.
	applied int64
}

// kept reads the node of a request, which may not exist, with its history.
func (a *API) kept(r *request) (k kept, err error) {
	key := r.nodeKey()
	ahead := []string{a.Store.Nodes.Key(key), a.Store.History.Key(key), a.Store.Status.Key(key)}
	_, err = a.Store.Update(r.Context(), "", ahead, func(v *store.View) error {
		k.node, k.history = a.Store.Nodes.Row(v, key), a.Store.History.Row(v, key).Value
		k.applied = a.Store.Status.Row(v, key).Value.Applied()
		return nil
	})
	return k, err
}

// keptNode is kept for a node that must exist.
func (a *API) keptNode(r *request) (kept, error) {
	k, err := a.kept(r)
	if err == nil && (!k.node.Exists() || !named(r.uid, k.node.Value.UID)) {
		err = a.notFound(r)
	}
	return k, err
}

// offered returns the revision that agents are offered, or the desired one; nil if it has none.
func (k kept) offered(desired bool) (*flexnode.Revision, error) {
	version := k.node.Value.Assigned
	if desired && version != 0 {
		version = k.node.Value.Revision
	}
	return k.history.Find(version)
}

func (a *API) listHistory(r *request) (any, error) {
	k, err := a.keptNode(r)
	if err != nil {
		return nil, err
	}
	all, err := k.history.All()
	if err != nil {
		return nil, err
	}
	answer := api.History{Revisions: []api.Revision{}}
	var newer map[string]any
	for i, revision := range all {
		config, err := a.Store.Config(r.Context(), *revision, flexnode.Grants{})
		if err != nil {
			return nil, err
		}
		if i > 0 {
			flexnode.Summarize(&answer.Revisions[i-1], flexnode.Diff(config, newer).Changes)
		}
		newer = config
		answer.Revisions = append(answer.Revisions,
			flexnode.ShownRevision(k.node.Value, revision, k.applied))
	}
	return answer, nil
}

func (a *API) diffRevisions(r *request, ask api.DiffRequest) (any, error) {
	from, to, problems := flexnode.ReadDiff(ask)
	if len(problems) > 0 {
		return nil, problems
	}
	k, err := a.keptNode(r)
	if err != nil {
		return nil, err
	}
	if k.applied != 0 && k.history.Has(k.applied) {
		from = cmp.Or(from, k.applied)
	}
	from, to = cmp.Or(from, k.node.Value.Assigned), cmp.Or(to, k.node.Value.Revision)
	before, err := a.keptConfig(r, k, from)
	if err != nil {
		return nil, err
	}
	after, err := a.keptConfig(r, k, to)
	diff := flexnode.Diff(before, after)
	diff.From, diff.To = flexnode.ShownVersion(from), flexnode.ShownVersion(to)
	return diff, err
}

func (a *API) keptConfig(r *request, k kept, version int64) (map[string]any, error) {
	config, err := a.Store.Kept(r.Context(), k.history, version)
	if err == nil && config == nil {
		err = notKept(k.node.Value, version)
	}
	return config, err
}

func notKept(n flexnode.Node, version int64) error {
	if n.Revision == 0 {
		return arm.Errorf(409, "RevisionNotKept",
			"The node has no configuration yet: its cluster has not been reached.")
	}
	return arm.Errorf(409, "RevisionNotKept", "The configVersion %d does not belong to the node or "+
		"is no longer stored: see listHistory for the stored ones.", version)
}

// rollBack rolls a node back to a revision. As with every change, its credentials are revoked.
func (a *API) rollBack(r *request, ask api.RollbackRequest) (any, error) {
	to, problems := flexnode.ReadRollback(ask)
	if len(problems) > 0 {
		return nil, problems
	}
	p := &put{api: a, r: r, to: to}
	p.quota = quota{api: a, r: r, key: r.nodeKey()}
	err := p.quota.change("node rolled back", p.ahead(),
		func(v *store.View) error { return p.decide(v, p.back) })
	if err != nil {
		return nil, err
	}
	r.after = flexnode.ShownVersion(p.node.Revision)
	return p.answer(nil)
}

func (p *put) back(
	v *store.View, c flexnode.Cluster, row store.Row[flexnode.Node], kept flexnode.History,
) (d flexnode.Decision, err error) {
	a, old := p.api, row.Value
	ask := flexnode.Rollback{
		By: p.r.caller.Name, ByType: p.r.caller.Type, At: a.Now(), Renderer: a.Renderer,
		To: store.RevisionIn(v, kept, p.to), Desired: store.RevisionIn(v, kept, old.Revision),
		Joins: p.joins(&old), Running: p.running(v, old, kept), Parent: a.parent(v, c),
		Secret: a.Credentials.Compare(v, p.r.nodeKey(), ""),
	}
	old.Unreleased = old.Lost(p.applied)
	if p.repeats = ask.To; ask.To == nil {
		return d, notKept(old, p.to)
	}
	if ask.Parent.Defaults, err = a.Store.Layer(v.Context(), ask.To.Defaults); err != nil {
		return d, err
	}
	if d, err = flexnode.RollBack(ask, old); err != nil {
		return d, err
	}
	return d, p.quota.needBytes(row, d.Node)
}
