package change

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Result summarises a verb's run.
type Result struct {
	NodeName string  `json:"nodeName"`
	Ready    bool    `json:"ready"`
	Changes  int     `json:"changes"`
	Seconds  float64 `json:"seconds"`
	// Conditions are failed conditions of a joined node that affect its pods.
	Conditions []health.Condition `json:"conditions,omitempty"`
	// Kept lists copies of things that others had changed, Left the things left to them.
	Kept []string `json:"kept,omitempty"`
	Left []string `json:"left,omitempty"`
}

// Bootstrap makes this machine the node in a configuration, and returns when the Node is healthy.
// It first finishes the transition of another run. It rolls back a change that fails.
func Bootstrap(ctx context.Context, a *Agent, in Input) (Result, error) {
	began := time.Now()
	result := Result{NodeName: in.Config.Agent.NodeName}
	before, err := OpenReadOnly(ctx, a)
	if err != nil {
		return result, err
	}
	t, err := Aim(ctx, before, in)
	if err != nil {
		return result, err
	}
	done, err := nothingToDo(ctx, before, t)
	if err == nil && !done {
		err = Reconcile(ctx, before, "bootstrap", t)
	}
	if err == nil {
		err = NoteApplied(ctx, a, in.Resource)
	}
	NoteWaiting(ctx, a, t, err)
	result.finish(began, before.view.Total, err)
	return result, err
}

// Unserved returns the condition of a node whose pods cannot reach Services, if any. The node
// stays: only the cluster's or the network's operator can fix that.
func Unserved(ctx context.Context, a *Agent) ([]health.Condition, error) {
	status, err := inspect.ReadStatus(ctx, &a.Env)
	return slices.DeleteFunc(status.Conditions, func(c health.Condition) bool {
		return c.Type != health.ServicesReachable || c.Status != health.False
	}), err
}

func (r *Result) finish(began time.Time, changes int, err error) {
	r.Ready, r.Changes, r.Seconds = err == nil, changes, time.Since(began).Seconds()
}

// nothingToDo reports whether the machine already is the node, healthy and Ready.
func nothingToDo(ctx context.Context, h *Home, t *Target) (bool, error) {
	if h.Saved.Transition != nil || !t.unchanged || h.Saved.Rejected.Outdated(t.Received) ||
		!h.Saved.Joined() || !Credentialed(h) || len(h.Saved.Bindings.ForeignCNI) > 0 &&
		len(inspect.ForeignNetworks(t.seen.CNIConfigs)) == 0 { // its pod network has left it
		return false, nil
	}
	plan, err := inspect.DriftPlan(ctx, h.Node, h.Saved.Applied, 0)
	if err != nil || len(plan) > 0 || inspect.ArcLost(ctx, h.Node) {
		return false, err
	}
	e := inspect.NewEvidence(h.Node, h.Saved.Applied.Config)
	inspect.ServiceEvidence(ctx, h.Node, &e)
	err = inspect.MachineEvidence(ctx, h.Node, t.seen, &e)
	if err != nil || !health.Healthy(health.Evaluate(health.GateLocal, e)) {
		return false, err
	}
	seen := inspect.SeeNode(ctx, h.Node)
	return seen.OK() && kube.ReadySince(time.Time{})(seen.Value) &&
		len(inspect.OtherSubnets(h.Node, seen)) == 0 &&
		len(inspect.NodeDrift(ctx, h.Node, h.Saved.Applied.Config, seen)) == 0, nil
}

// movedTo returns the API server in the bindings; nil if it is the proved one.
func movedTo(h *Home, b saved.Bindings) *inspect.Cluster {
	if is := h.Saved.At(); is.Server == "" || b.Server == is.Server && b.CA == is.CA {
		return nil
	}
	return &inspect.Cluster{Server: b.Server, CA: b.CA}
}

// announce stores everything that a transition needs before it begins. The ledger is first: a
// machine whose state directory has records must have one.
func announce(
	ctx context.Context, h *Home, t transition.Transition, to *generation.Generation, b saved.Bindings,
) error {
	others := h.Engine.Journal.Ledger().As(func(state.Entry) bool { return true })
	plan, _, err := h.Engine.Plan(ctx, node.Foundation(h.Saved.ConfigOf(to)), others)
	if err != nil {
		return err
	}
	h.Engine.Emit, h.view.Quiet = h.view.Changed, true
	defer func() { h.view.Quiet = false }()
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return h.Engine.Apply(ctx, plan) },
		func(ctx context.Context) error { return h.Store.Generations.Save(ctx, *to) },
		h.Store.SaveSecrets,
	}
	if t.Kind == transition.Join {
		h.Saved.Bindings = b
		steps = append(steps, h.Store.SaveBindings, func(ctx context.Context) error {
			return h.Store.PublishJoin(ctx, to.Config.Agent.NodeName)
		}, func(ctx context.Context) error { return h.Store.Remove(ctx, saved.FormerFile) })
	}
	if err := inTurn(ctx, steps...); err != nil {
		return err
	}
	h.Saved.Bindings.ForeignCNI, h.Saved.Bindings.Program = b.ForeignCNI, b.Program
	return h.Store.PublishCurrent(ctx, to)
}

// Plan returns exactly what Bootstrap would do with a configuration, and changes nothing.
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
	source := source(h, in.Config)
	missing := artifact.Missing(h.Path(node.StoreDir), arts)
	report := inspect.Report{Changes: state.Lines(plan), Hosts: artifact.Hosts(missing, source)}
	report.Drains = h.Saved.Applied != nil && h.Saved.Applied.Config.Drains(to.Config)
	for _, a := range missing {
		report.Downloads = append(report.Downloads, inspect.Download{
			Name: string(a.Name), Version: a.Version, URL: artifact.Redact(a.URL), Size: a.Size,
		})
	}
	return report, nil
}

// PlanLeave returns what Unbootstrap would undo, and changes nothing.
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

// foresee plans the whole way to a generation; for a join, including what needs the credential.
func foresee(
	ctx context.Context, h *Home, to *generation.Generation, b node.Bindings,
) (state.Plan, error) {
	if len(b.PodCIDRs) == 0 { // unknown yet; they have the same families as the cluster's
		b.PodCIDRs = to.Config.CNI.NonMasqueradeCIDRs
	}
	if len(b.PodCIDRs) == 0 {
		b.PodCIDRs = []string{to.Config.Node.Kubelet.DNSServiceIP} // only its family counts
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
		ledger.Owed = nil // the first part restarts the units that it owes
		all = append(all, plan...)
	}
	return all, nil
}
