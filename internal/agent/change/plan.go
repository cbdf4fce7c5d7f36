package change

import (
	"context"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Plan tells exactly what Bootstrap would do with a configuration, and touches nothing.
func Plan(ctx context.Context, a *Agent, in Input) (inspect.Report, error) {
	h, err := OpenReadOnly(ctx, a)
	if err != nil {
		return inspect.Report{}, err
	}
	t, err := Aim(ctx, h, in)
	if err != nil {
		return inspect.Report{}, err
	}
	if err := preflight(ctx, h, t); err != nil {
		return inspect.Report{}, err
	}
	to, arts := h.Saved.Applied, []artifact.Artifact(nil)
	if !t.unchanged {
		if to, arts, err = resolve(ctx, h, t); err != nil {
			return inspect.Report{}, err
		}
	}
	b := bindingsFor(h, t).Bindings
	b.BootstrapToken = in.Config.Credentials().BootstrapToken
	b.AdminKubeconfig = inspect.Admin(h.Node)
	plan, err := foresee(ctx, h, to, b)
	if err != nil {
		return inspect.Report{}, err
	}
	if h.Saved.Live != nil {
		plan = append(plan, inspect.NodeDrift(ctx, h.Node, to.Config, inspect.SeeNode(ctx, h.Node))...)
	}
	report := inspect.Report{Changes: state.Lines(plan)}
	report.Drains = h.Saved.Applied != nil && h.Saved.Applied.Config.Drains(to.Config)
	addDownloads(ctx, h, in.Config, arts, &report)
	return report, nil
}

// PlanLeave tells what Unbootstrap would undo, and touches nothing.
func PlanLeave(ctx context.Context, a *Agent, how Leave) (inspect.Report, error) {
	h, err := OpenReadOnly(ctx, a)
	if err != nil {
		return inspect.Report{}, err
	}
	plan, _, err := h.Engine.Plan(ctx, nil, nil)
	return inspect.Report{
		Changes: state.Lines(plan), Drains: h.Saved.Live != nil && how.DrainTimeout > 0,
	}, err
}

// foresee plans the whole way to a generation, for a join also what follows the credential.
func foresee(
	ctx context.Context, h *Home, to *generation.Generation, b node.Bindings,
) (state.Plan, error) {
	if len(b.PodCIDRs) == 0 { // not known; they are of the same families as the cluster's
		b.PodCIDRs = to.Config.CNI.NonMasqueradeCIDRs
	}
	b, err := inspect.WithArc(ctx, h.Node, to.Node, b)
	if err != nil {
		return nil, err
	}
	joined := b
	joined.Joined = true
	parts := []state.Desired{node.Bind(to.Node, b), node.Bind(to.Node, joined)}
	if b.Joined {
		parts = parts[1:]
	} else {
		parts[0], _, _ = parts[0].Cut(func(n state.Need) bool { return n != node.Ready })
	}
	var all state.Plan
	seen, err := h.Engine.Observe(ctx, slices.Concat(parts...), nil)
	if err == nil {
		err = apply.Blind(seen.Unknown())
	}
	if err != nil {
		return nil, err
	}
	ledger := h.Engine.Journal.Ledger()
	for i, part := range parts {
		var later state.Desired
		if i == 0 {
			later = parts[len(parts)-1]
		}
		plan := state.Diff(part, later, seen, ledger)
		seen, ledger = state.After(seen, plan), ledger.Record(plan).Done(plan)
		ledger.Owed = nil // the first part restarts what it owes
		all = append(all, plan...)
	}
	return all, nil
}

func addDownloads(
	ctx context.Context, h *Home, c config.Config, arts []artifact.Artifact, report *inspect.Report,
) {
	source := source(h, c)
	missing := artifact.Measure(ctx, source, artifact.Missing(h.Path(node.StoreDir), arts))
	for _, a := range missing {
		report.Downloads = append(report.Downloads, inspect.Download{
			Name: string(a.Name), Version: a.Version, URL: artifact.Redact(a.URL), Size: a.Size,
		})
	}
	report.Hosts = artifact.Hosts(missing, source)
}
