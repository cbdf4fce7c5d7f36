package agent

import (
	"context"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Report is a plan as people and programs read it.
type Report struct {
	Changes   []Entry    `json:"changes"`
	Downloads []Download `json:"downloads,omitempty"`
	Hosts     []string   `json:"hosts,omitempty"`
	// Drains tells that the pods move to other nodes first.
	Drains bool `json:"drains,omitempty"`
}

// Entry is one change: what is done to what, and what is there now. For drift, Expected is what the
// applied configuration says and Found what is there.
type Entry struct {
	Step     state.Step `json:"step"`
	Key      state.Key  `json:"key"`
	Action   string     `json:"action"`
	Expected string     `json:"expected"`
	Found    string     `json:"found"`
}

// Download is an artifact that the store does not have yet. Size is 0 when unknown.
type Download struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Size    int64  `json:"size"`
}

// Plan tells exactly what Bootstrap would do with a configuration, and touches nothing.
func (a *Agent) Plan(ctx context.Context, in Input) (Report, error) {
	h, err := a.openReadOnly(ctx)
	if err != nil {
		return Report{}, err
	}
	t, err := h.aim(ctx, in)
	if err != nil {
		return Report{}, err
	}
	if err := h.preflight(ctx, t); err != nil {
		return Report{}, err
	}
	to, arts := h.saved.Applied, []artifact.Artifact(nil)
	if !t.unchanged {
		if to, arts, err = h.resolve(ctx, t); err != nil {
			return Report{}, err
		}
	}
	b := h.bindingsFor(t).Bindings
	b.BootstrapToken = in.Config.Credentials().BootstrapToken
	b.AdminKubeconfig = h.admin()
	plan, err := h.foresee(ctx, to, b)
	if err != nil {
		return Report{}, err
	}
	if h.saved.Live != nil {
		plan = append(plan, h.nodeDrift(ctx, to.Config, h.seeNode(ctx))...)
	}
	report := Report{Changes: entries(plan)}
	report.Drains = h.saved.Applied != nil && drains(h.saved.Applied.Config, to.Config)
	h.addDownloads(ctx, in.Config, arts, &report)
	return report, nil
}

// foresee plans the whole way to a generation. Joining has two parts: what is done before kubelet
// has a credential of its own, and what follows.
func (h *home) foresee(
	ctx context.Context, to *generation.Generation, b node.Bindings,
) (state.Plan, error) {
	if len(b.PodCIDRs) == 0 { // nobody knows; they are of the same families as the cluster's
		b.PodCIDRs = to.Config.CNI.NonMasqueradeCIDRs
	}
	b, err := h.withArc(ctx, to.Node, b)
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
	seen, err := h.engine.Observe(ctx, slices.Concat(parts...), nil)
	if err == nil {
		err = apply.Blind(seen.Unknown())
	}
	if err != nil {
		return nil, err
	}
	ledger := h.engine.Journal.Ledger()
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

func entries(plan state.Plan) []Entry {
	list := make([]Entry, len(plan))
	for i, c := range plan {
		list[i] = Entry{
			Step: c.Step, Key: c.To.Key(), Action: state.Describe(c),
			Expected: state.Show(c.To), Found: state.Show(c.From),
		}
		if c.Restart {
			list[i].Found = "restart pending"
		}
	}
	return list
}

// addDownloads adds what would be downloaded, and from where.
func (h *home) addDownloads(
	ctx context.Context, c config.Config, arts []artifact.Artifact, report *Report,
) {
	missing := artifact.Missing(h.path(node.StoreDir), arts)
	if len(missing) == 0 {
		return
	}
	source := h.source(c)
	missing = artifact.Measure(ctx, source, missing)
	for _, a := range missing {
		report.Downloads = append(report.Downloads, Download{
			Name: string(a.Name), Version: a.Version, URL: artifact.Redact(a.URL), Size: a.Size,
		})
	}
	report.Hosts, _ = artifact.Hosts(missing, source)
}
