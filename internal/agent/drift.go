package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Drift compares the machine and its Node object with what was applied last. With repair, what
// differs is put right. An API server that does not answer makes nothing drift.
func (a *Agent) Drift(ctx context.Context, repair bool) (Report, error) {
	if repair {
		return a.Repair(ctx, nil)
	}
	h, err := a.openReadOnly(ctx)
	if err != nil {
		return Report{}, err
	}
	if h.saved.Applied == nil {
		return Report{}, errNoNode
	}
	plan, err := h.drift(ctx, h.saved.Applied)
	if err != nil {
		return Report{}, err
	}
	seen := h.seeNode(ctx)
	plan = append(plan, h.nodeDrift(ctx, h.saved.Applied.Config, seen)...)
	return Report{Changes: append(entries(plan), h.unplanned(ctx, seen)...)}, nil
}

// unplanned lists what differs and is in no plan: the pod subnets, the store, the enrolment with
// Azure Arc, and how the container runtime runs.
func (h *home) unplanned(ctx context.Context, seen health.Answer[kube.Node]) []Entry {
	return slices.Concat(h.subnetDrift(seen), h.storeDrift(), h.arcLost(ctx), h.runtimeLost(ctx))
}

// Repair puts right what differs from what was applied. With things it does so only for them; nil
// means everything.
func (a *Agent) Repair(ctx context.Context, things []string) (Report, error) {
	h, err := a.openLocked(ctx, "drift --repair")
	if err != nil {
		return Report{}, err
	}
	defer h.close()
	if h.saved.Applied == nil {
		return Report{}, errNoNode
	}
	if h.saved.Transition != nil && h.saved.Transition.Kind != transition.Repair {
		return Report{}, &UnderWayError{*h.saved.Transition}
	}
	plan, err := h.drift(ctx, h.saved.Applied)
	if _, blind := errors.AsType[*apply.BlindError](err); blind {
		h.warn("%v; repairing the rest", err)
	} else if err != nil {
		return Report{}, err
	}
	seen := h.seeNode(ctx)
	plan = append(plan, h.nodeDrift(ctx, h.saved.Applied.Config, seen)...)
	report := Report{Changes: append(entries(plan), h.unplanned(ctx, seen)...)}
	if len(report.Changes) == 0 && h.saved.Transition == nil {
		return Report{}, nil
	}
	t := h.following(transition.Decision{Kind: transition.Repair, To: h.saved.Applied.ID})
	t.Ungated, t.Things = true, things
	return report, h.run(ctx, t, "", &steps{agent: a})
}

// UnderWayError tells that a change is under way, which comes before a repair or a rollback.
type UnderWayError struct{ Transition transition.Transition }

func (e *UnderWayError) Error() string {
	finish := "bootstrap"
	if e.Transition.GoesBack() {
		finish = "rollback"
	}
	return "cannot begin now: a " + string(e.Transition.Kind) + " is under way (phase " +
		string(e.Transition.Phase) + "); finish it with `aks-flex-node " + finish + "`"
}

// drift returns what would have to change for the machine to be what a generation says, as far as
// it can be observed: the rest is an apply.BlindError. It asks no network.
func (h *home) drift(ctx context.Context, g *generation.Generation) (state.Plan, error) {
	b, spared := h.standing(g, h.saved.Bindings.Bindings)
	b, err := h.withArc(ctx, g.Node, b)
	if err != nil {
		return nil, err
	}
	spared = slices.Concat(spared, h.standingArc(), h.standingSwap())
	plan, unknown, err := h.engine.Plan(ctx, node.Bind(g.Node, h.saved.Bound(b, g)), spared)
	if err == nil {
		err = apply.Blind(unknown)
	}
	return plan, err
}

// standing returns the bindings that a node is compared and repaired with. Its pod network is that
// of somebody else as long as there is one, or was one when the node was changed last. Then ours is
// spared: it is neither wanted nor removed, so that a network which comes, goes or renames ours is
// no drift.
func (h *home) standing(
	g *generation.Generation, b node.Bindings,
) (node.Bindings, state.Desired) {
	if configs, err := h.Machine.CNIConfigs(g.Config.Paths.CNI.ConfDir); err == nil {
		if foreign := foreignNetworks(configs); len(foreign) > 0 {
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
