package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
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
	// Kept are copies of what somebody else had changed and unbootstrap has replaced, Left is what
	// it has left alone for that reason.
	Kept []string `json:"kept,omitempty"`
	Left []string `json:"left,omitempty"`
}

// Bootstrap makes this machine the node that a configuration describes, and returns when the Node
// is healthy and labelled. On a machine that is that node it is a no-op. What another run left
// unfinished is finished first. A healthy machine whose new configuration does not work is rolled
// back.
func (a *Agent) Bootstrap(ctx context.Context, in Input) (Result, error) {
	began := now()
	result := Result{NodeName: in.Config.Agent.NodeName}
	before, err := a.openReadOnly(ctx)
	if err != nil {
		return result, err
	}
	t, err := before.aim(ctx, in)
	if err != nil {
		return result, err
	}
	if before.saved.Idle() && t.unchanged && !before.saved.Outdated(t.received) {
		if done, err := before.nothingToDo(ctx, t); done || err != nil {
			if err == nil {
				err = a.noteApplied(ctx, in.Resource)
				a.forgetWaiting(ctx)
			}
			result.finish(began, 0, err)
			return result, err
		}
	}
	view := &steps{agent: a}
	err = before.reconcile(ctx, "bootstrap", t, view)
	if err == nil {
		err = a.noteApplied(ctx, in.Resource)
	}
	a.noteWaiting(ctx, t, verdict(err))
	result.finish(began, view.total, err)
	return result, err
}

func (r *Result) finish(began time.Time, changes int, err error) {
	r.Ready, r.Changes, r.Took = err == nil, changes, time.Since(began)
	r.Seconds = r.Took.Seconds()
}

// RejectedError tells that a configuration has failed before.
type RejectedError struct{ Rejection saved.Rejection }

func (e *RejectedError) Error() string {
	return fmt.Sprintf("the configuration was rejected at %s: %s",
		e.Rejection.At.Format(time.DateTime), e.Rejection.Reason)
}

// isFor tells whether a transition leads to what a target asks for.
func (h *home) isFor(left transition.Transition, t *target) (bool, error) {
	to, err := h.saved.Generations.Load(left.To)
	if errors.Is(err, generation.ErrDamaged) {
		return false, nil
	}
	return err == nil && to.Received == t.received, err
}

// nothingToDo tells whether the machine is the node already: an empty plan, services that are
// healthy, and a Node that is registered, Ready and labelled.
func (h *home) nothingToDo(ctx context.Context, t *target) (bool, error) {
	if !h.saved.Joined() || !h.credentialed(h.saved.Applied.Config) {
		return false, nil
	}
	unchanged, err := h.asApplied(ctx, t)
	if err != nil || !unchanged {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return h.readyNow(bounded), nil
}

// asApplied tells whether nothing differs on the machine and its services are healthy.
func (h *home) asApplied(ctx context.Context, t *target) (bool, error) {
	plan, err := h.drift(ctx, h.saved.Applied)
	if err != nil || len(plan) > 0 {
		return false, err
	}
	if len(h.arcLost(ctx)) > 0 {
		return false, nil
	}
	e := health.Evidence{Now: now(), Wanted: h.wanted(h.saved.Applied.Config)}
	h.serviceEvidence(ctx, &e)
	e.Machine, err = h.machineEvidence(ctx, h.saved.Applied.Config, t.seen)
	return err == nil && health.Healthy(health.Evaluate(health.GateLocal(), e)), err
}

// readyNow asks once whether the Node is Ready, labelled, and has its pod subnets. Whether the API
// server can be reached at all is for the preflight to say.
func (h *home) readyNow(ctx context.Context) bool {
	client, err := h.kubeletClient(ctx, h.saved.ConfigOf(h.saved.Applied), h.saved.At())
	if err != nil {
		return false
	}
	defer client.Close()
	n, err := client.Node(ctx, h.saved.Applied.Config.Agent.NodeName)
	if err != nil || !readySince(time.Time{})(n) || len(h.otherSubnets(health.Answered(n, nil))) > 0 {
		return false
	}
	for key, value := range h.saved.Applied.Config.Node.Labels {
		if n.Labels[key] != value {
			return false
		}
	}
	return true
}

// movedTo is where the API server is according to new bindings; nil when that is where it was
// proved.
func (h *home) movedTo(b saved.Bindings) *where {
	is := h.saved.At()
	if is.Server == "" || b.Server == is.Server && b.CA == is.CA {
		return nil
	}
	return &where{Server: b.Server, CA: b.CA}
}

// announce puts on disk all that a transition needs before it begins. The ledger is first: a
// machine whose state directory has records must have one.
func (h *home) announce(
	ctx context.Context, t transition.Transition, to *generation.Generation, b saved.Bindings,
	view *steps,
) error {
	others := wholeLedger(h.engine.Journal.Ledger())
	plan, _, err := h.engine.Plan(ctx, node.Foundation(h.saved.ConfigOf(to)), others)
	if err != nil {
		return err
	}
	h.engine.Emit, view.quiet = view.emit, true
	defer func() { view.quiet = false }()
	if err := h.engine.Apply(ctx, plan); err != nil {
		return err
	}
	if err := h.saved.Generations.Save(ctx, *to); err != nil {
		return err
	}
	if err := h.saved.SaveSecrets(ctx); err != nil {
		return err
	}
	if t.Kind == transition.Join {
		h.saved.Bindings = b
		if err := h.saved.SaveBindings(ctx); err != nil {
			return err
		}
		if err := h.saved.PublishJoin(ctx, to.Config.Agent.NodeName); err != nil {
			return err
		}
	}
	h.saved.Bindings.ForeignCNI, h.saved.Bindings.Program = b.ForeignCNI, b.Program
	return h.saved.PublishCurrent(ctx, to)
}

// wholeLedger wants all that is remembered as it is, so that a plan beside it undoes nothing.
func wholeLedger(l state.Ledger) state.Desired {
	var all state.Desired
	for _, e := range l.Entries {
		all = append(all, state.Item{Step: e.Step, Resource: e.Ours.Resource})
	}
	return all
}
