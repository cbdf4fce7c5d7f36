package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Drift compares the machine and its Node object with what was applied last. An API server that
// does not answer makes nothing drift.
func Drift(ctx context.Context, a *Env) (Report, error) {
	h, err := open(ctx, a)
	if err != nil {
		return Report{}, err
	}
	if h.Saved.Applied == nil {
		return Report{}, ErrNoNode
	}
	plan, err := DriftPlan(ctx, h, h.Saved.Applied)
	if err != nil {
		return Report{}, err
	}
	seen := SeeNode(ctx, h)
	plan = append(plan, NodeDrift(ctx, h, h.Saved.Applied.Config, seen)...)
	return Report{Changes: append(Entries(plan), Unplanned(ctx, h, seen)...)}, nil
}

// Unplanned lists what differs and is in no plan: the pod subnets, the store, the enrolment with
// Azure Arc, and how the container runtime runs.
func Unplanned(ctx context.Context, h *Node, seen health.Answer[kube.Node]) []Entry {
	return slices.Concat(subnetDrift(h, seen), storeDrift(h), ArcLost(ctx, h), RuntimeLost(ctx, h))
}

// DriftPlan returns what would have to change for the machine to be what a generation says, as far
// as it can be observed: the rest is an apply.BlindError. It asks no network.
func DriftPlan(ctx context.Context, h *Node, g *generation.Generation) (state.Plan, error) {
	return driftPlanWithin(ctx, h, g, 0)
}

// driftPlanWithin is drift with a bound on the observation of the machine; 0 is no bound.
func driftPlanWithin(
	ctx context.Context, h *Node, g *generation.Generation, patience time.Duration,
) (state.Plan, error) {
	b, spared := Standing(h, g, h.Saved.Bindings.Bindings)
	b, err := WithArc(ctx, h, g.Node, b)
	if err != nil {
		return nil, err
	}
	spared = slices.Concat(spared, StandingArc(h), StandingSwap(h))
	view := h.view()
	view.Patience = patience
	plan, unknown, err := view.Plan(ctx, node.Bind(g.Node, h.Saved.Bound(b, g)), spared)
	if err == nil {
		err = apply.Blind(unknown)
	}
	return plan, err
}

// Standing returns the bindings that a node is compared and repaired with. Its pod network is that
// of somebody else as long as there is one, or was one when the node was changed last. Then ours is
// spared: it is neither wanted nor removed, so that a network which comes, goes or renames ours is
// no drift.
func Standing(
	h *Node, g *generation.Generation, b node.Bindings,
) (node.Bindings, state.Desired) {
	if configs, err := h.Reader.CNIConfigs(g.Config.Paths.CNI.ConfDir); err == nil {
		if foreign := ForeignNetworks(configs); len(foreign) > 0 {
			b.ForeignCNI = foreign
		}
	}
	if len(b.ForeignCNI) == 0 {
		return b, nil
	}
	return b, slices.DeleteFunc(slices.Clone(g.Node), func(item state.Item) bool {
		return !node.IsOwnNetwork(item.Only)
	})
}
