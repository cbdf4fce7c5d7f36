package change

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Result sums up what a verb has done.
type Result struct {
	NodeName string        `json:"nodeName"`
	Ready    bool          `json:"ready"`
	Changes  int           `json:"changes"`
	Took     time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"`
	// Conditions are those of a node that has joined and whose pods lack something all the same.
	Conditions []health.Condition `json:"conditions,omitempty"`
	// Kept lists copies of what others had changed, Left what was left alone for that reason.
	Kept []string `json:"kept,omitempty"`
	Left []string `json:"left,omitempty"`
}

// Bootstrap makes this machine the node that a configuration describes, and returns when the Node
// is healthy. What another run left is finished first. What does not work is rolled back.
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

// Unserved returns the condition of a node whose pods reach no Services; none where they do. The
// node stays: only the cluster's or the network's operator can add what is missing.
func Unserved(ctx context.Context, a *Agent) ([]health.Condition, error) {
	status, err := inspect.ReadStatus(ctx, &a.Env)
	return slices.DeleteFunc(status.Conditions, func(c health.Condition) bool {
		return c.Type != health.ServicesReachable || c.Status != health.False
	}), err
}

func (r *Result) finish(began time.Time, changes int, err error) {
	r.Ready, r.Changes, r.Took = err == nil, changes, time.Since(began)
	r.Seconds = r.Took.Seconds()
}

// nothingToDo reports whether the machine is the node already, healthy and Ready.
func nothingToDo(ctx context.Context, h *Home, t *Target) (bool, error) {
	if h.Saved.Transition != nil || !t.unchanged || h.Saved.Rejected.Outdated(t.Received) ||
		!h.Saved.Joined() || !access.Held(h.Node, h.Saved.Applied.Config) {
		return false, nil
	}
	plan, err := inspect.DriftPlan(ctx, h.Node, h.Saved.Applied, 0)
	if err != nil || len(plan) > 0 || inspect.ArcLost(ctx, h.Node) {
		return false, err
	}
	e := inspect.NewEvidence(h.Node, h.Saved.Applied.Config)
	inspect.ServiceEvidence(ctx, h.Node, &e)
	err = inspect.MachineEvidence(ctx, h.Node, t.seen, &e)
	return err == nil && health.Healthy(health.Evaluate(health.GateLocal, e)) && readyNow(ctx, h), err
}

// readyNow asks once whether the Node is Ready, labelled, and has its pod subnets.
func readyNow(ctx context.Context, h *Home) bool {
	seen := inspect.SeeNode(ctx, h.Node)
	if !seen.OK() || !kube.ReadySince(time.Time{})(seen.Value) ||
		len(inspect.OtherSubnets(h.Node, seen)) > 0 {
		return false
	}
	for key, value := range h.Saved.Applied.Config.Node.Labels {
		if seen.Value.Labels[key] != value {
			return false
		}
	}
	return true
}

// movedTo is where the API server is by new bindings; nil if that is where it was proved.
func movedTo(h *Home, b saved.Bindings) *inspect.Cluster {
	is := h.Saved.At()
	if is.Server == "" || b.Server == is.Server && b.CA == is.CA {
		return nil
	}
	return &inspect.Cluster{Server: b.Server, CA: b.CA}
}

// announce puts on disk all that a transition needs before it begins. The ledger is first: a
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
		})
	}
	if err := inTurn(ctx, steps...); err != nil {
		return err
	}
	h.Saved.Bindings.ForeignCNI, h.Saved.Bindings.Program = b.ForeignCNI, b.Program
	return h.Store.PublishCurrent(ctx, to)
}
