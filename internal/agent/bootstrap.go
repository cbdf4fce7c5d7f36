package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
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
	if before.idle() && t.unchanged && !before.outdated(t.received) {
		if done, err := before.nothingToDo(ctx, t); done || err != nil {
			if err == nil {
				err = a.noteApplied(ctx, in.Resource)
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
	result.finish(began, view.total, err)
	return result, err
}

// idle reports whether nothing is under way.
func (m *memory) idle() bool { return m.transition == nil }

func (r *Result) finish(began time.Time, changes int, err error) {
	r.Ready, r.Changes, r.Took = err == nil, changes, time.Since(began)
	r.Seconds = r.Took.Seconds()
}

// reconcile leads the machine to a target, which was aimed at without the lock: what can be found
// out before anything is touched is found out without it, too. What another run has left on a node
// that was healthy is finished in any case; then comes the preflight.
func (h *home) reconcile(ctx context.Context, verb string, t *target, view *steps) error {
	first := h.transition == nil || h.transition.Kind == transition.Join
	if first {
		if err := h.preflight(ctx, t); err != nil {
			return err
		}
	} else if err := h.follow(ctx, t); err != nil {
		h.Log.Warn("cannot find the API server again", "error", err)
	}
	h, err := h.openLocked(ctx, verb)
	if err != nil {
		return err
	}
	defer h.close()
	if t, err = h.aimAgain(ctx, t); err != nil {
		return err
	}
	if !t.daemon { // a person has asked, so what was rejected is tried again
		if err := h.forgive(ctx, t.received); err != nil {
			return err
		}
	}
	if err := h.want(ctx, t.received); err != nil {
		return err
	}
	t, done, err := h.finishLeft(ctx, t, view)
	if err != nil || done {
		return err
	}
	if !t.daemon { // a rollback that was finished holds it back
		if err := h.forgive(ctx, t.received); err != nil {
			return err
		}
	}
	if r, rejected := h.rejection(t.received); rejected {
		return errors.Join(&RejectedError{r}, h.undoLeft(ctx, view))
	}
	if t.daemon && t.unchanged && !t.moved && h.left == nil {
		return h.knowCluster(ctx) // whether the node is healthy is for a check
	}
	if !first {
		if err := h.preflight(ctx, t); err != nil {
			return err
		}
	}
	if err := unknownFirewalls(t); err != nil { // the machine was seen again since
		return err
	}
	return h.pursue(ctx, t, view)
}

// RejectedError tells that a configuration has failed before.
type RejectedError struct{ Rejection Rejection }

func (e *RejectedError) Error() string {
	return fmt.Sprintf("the configuration was rejected at %s: %s",
		e.Rejection.At.Format(time.DateTime), e.Rejection.Reason)
}

// finishLeft deals with a transition that another run has left. The one that this target asks for
// is continued, and a rollback, also by hand, is finished; anything else is superseded by the
// transition that follows. It returns true when the target is reached with that, else the target as
// it is seen from there.
func (h *home) finishLeft(ctx context.Context, t *target, view *steps) (*target, bool, error) {
	left := h.transition
	if left == nil {
		return t, false, nil
	}
	h.Log.Info("continuing what another run has left", "kind", left.Kind, "phase", left.Phase)
	if left.GoesBack() {
		if err := h.resume(ctx, *left, view); err != nil {
			return t, false, err
		}
		h.note("the rollback that another run had begun is finished")
		if err := h.read(ctx); err != nil {
			return t, false, err
		}
		t, err := h.aimAgain(ctx, t)
		return t, false, err
	}
	if left.Kind == transition.Join || left.Kind == transition.Change {
		same, err := h.isFor(*left, t)
		if err != nil {
			return t, false, err
		}
		if same {
			if err := h.renewOnboarding(ctx, left.To, t.input.Config); err != nil {
				return t, false, err
			}
			to := h.movedTo(h.bindingsFor(t))
			if t.at != (where{}) && to != nil && (left.Cluster == nil || *to != *left.Cluster) {
				left.Cluster, left.Phase = to, "" // once more, with the other address
			}
			return t, true, h.resume(ctx, *left, view)
		}
	}
	h.left = left
	return t, false, nil
}

// undoLeft makes the machine again what was applied, when a transition was left half done and
// nothing follows it.
func (h *home) undoLeft(ctx context.Context, view *steps) error {
	if h.left == nil || h.applied == nil {
		return nil
	}
	return h.run(ctx, h.repair(), view)
}

// isFor tells whether a transition leads to what a target asks for.
func (h *home) isFor(left transition.Transition, t *target) (bool, error) {
	to, err := h.store.Load(left.To)
	if errors.Is(err, generation.ErrDamaged) {
		return false, nil
	}
	return err == nil && to.Received == t.received, err
}

// resume continues a transition. One whose generation was rejected by the run that began it is
// rolled back, as that run was about to do.
func (h *home) resume(ctx context.Context, left transition.Transition, view *steps) error {
	r, rejected := h.rejectedGeneration(left.To)
	if !rejected || left.Kind != transition.Change {
		return h.run(ctx, left, view)
	}
	back := left.Back(errors.New(r.Reason), stamp())
	return errors.Join(&RejectedError{r}, h.run(ctx, back, view))
}

func (m *memory) rejectedGeneration(id string) (Rejection, bool) {
	for _, r := range m.rejected {
		if r.Generation == id {
			return r, true
		}
	}
	return Rejection{}, false
}

// nothingToDo tells whether the machine is the node already: an empty plan, services that are
// healthy, and a Node that is registered, Ready and labelled.
func (h *home) nothingToDo(ctx context.Context, t *target) (bool, error) {
	if !h.joined() || !h.credentialed(h.applied.Config) {
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
	plan, err := h.drift(ctx, h.applied)
	if err != nil || len(plan) > 0 {
		return false, err
	}
	if len(h.arcLost(ctx)) > 0 {
		return false, nil
	}
	e := health.Evidence{Now: now(), Wanted: h.wanted(h.applied.Config)}
	h.serviceEvidence(ctx, &e)
	e.Machine, err = h.machineEvidence(ctx, h.applied.Config, t.seen)
	return err == nil && health.Healthy(health.Evaluate(health.GateLocal(), e)), err
}

// readyNow asks once whether the Node is Ready and labelled. Whether the API server can be reached
// at all is for the preflight to say.
func (h *home) readyNow(ctx context.Context) bool {
	client, err := h.kubeletClient(ctx, h.configOf(h.applied), h.at())
	if err != nil {
		return false
	}
	defer client.Close()
	n, err := client.Node(ctx, h.applied.Config.Agent.NodeName)
	if err != nil || !readySince(time.Time{})(n) {
		return false
	}
	for key, value := range h.applied.Config.Node.Labels {
		if n.Labels[key] != value {
			return false
		}
	}
	return true
}

// pursue makes the transition that leads to a target, and carries it out.
func (h *home) pursue(ctx context.Context, t *target, view *steps) error {
	b := h.bindingsFor(t)
	next := h.next()
	next.Cluster = h.movedTo(b)
	if t.unchanged && next.Cluster == nil {
		return h.makeAgain(ctx, t, b, view)
	}
	to := h.applied
	if !t.unchanged {
		resolved, _, err := h.resolve(ctx, t)
		if err != nil {
			return err
		}
		to = resolved
	}
	if foreign := b.ForeignCNI; len(foreign) > 0 {
		h.warn("%s has a pod network already (%s); ours is left out",
			t.input.Config.Paths.CNI.ConfDir, strings.Join(foreign, ", "))
	}
	next.Kind, next.To = transition.Join, to.ID
	if h.applied != nil {
		next.Kind, next.From = transition.Change, h.applied.ID
		next.Drains = to.Config.Agent.UpgradePolicy.Drains(
			minorChanges(h.applied.Config, to.Config))
	}
	h.secrets[to.ID] = t.input.Config.Credentials()
	if err := h.withAdmin(ctx, t.input.Config, to); err != nil {
		return err
	}
	if err := h.announce(ctx, next, to, b, view); err != nil {
		return err
	}
	return h.run(ctx, next, view)
}

// makeAgain makes the machine again what was applied. A kubelet that has lost its credential joins
// once more, with the bootstrap token that is in the configuration now.
func (h *home) makeAgain(ctx context.Context, t *target, b bindings, view *steps) error {
	h.bindings.ForeignCNI, h.bindings.Program = b.ForeignCNI, b.Program
	if !h.credentialed(h.applied.Config) {
		h.secrets[h.applied.ID] = t.input.Config.Credentials()
		if err := h.saveSecrets(ctx); err != nil {
			return err
		}
	}
	return h.run(ctx, h.repair(), view)
}

// next is a transition that follows what is left of another one: a Node that was cordoned has to be
// uncordoned.
func (h *home) next() transition.Transition {
	return transition.Transition{Began: stamp(), Cordoned: h.left != nil && h.left.Cordoned}
}

// repair makes the machine again what was applied.
func (h *home) repair() transition.Transition {
	t := h.next()
	t.Kind, t.From, t.To = transition.Repair, h.applied.ID, h.applied.ID
	return t
}

// movedTo is where the API server is according to new bindings; nil when that is where it was
// proved.
func (h *home) movedTo(b bindings) *where {
	if h.bindings.Server == "" || b.Server == h.bindings.Server && b.CA == h.bindings.CA {
		return nil
	}
	return &where{Server: b.Server, CA: b.CA}
}

// announce puts on disk all that a transition needs before it begins. The ledger is first: a
// machine whose state directory has records must have one.
func (h *home) announce(
	ctx context.Context, t transition.Transition, to *generation.Generation, b bindings, view *steps,
) error {
	others := wholeLedger(h.engine.Journal.Ledger())
	plan, _, err := h.engine.Plan(ctx, node.Foundation(h.configOf(to)), others)
	if err != nil {
		return err
	}
	h.engine.Emit, view.quiet = view.emit, true
	defer func() { view.quiet = false }()
	if err := h.engine.Apply(ctx, plan); err != nil {
		return err
	}
	if err := h.store.Save(ctx, *to); err != nil {
		return err
	}
	if err := h.saveSecrets(ctx); err != nil {
		return err
	}
	if t.Kind == transition.Join {
		h.bindings = b
		if err := h.saveBindings(ctx); err != nil {
			return err
		}
		if err := h.publishJoin(ctx, to.Config.Agent.NodeName); err != nil {
			return err
		}
	}
	h.bindings.ForeignCNI, h.bindings.Program = b.ForeignCNI, b.Program
	return h.publish(ctx, currentFile, to)
}

// wholeLedger wants all that is remembered as it is, so that a plan beside it undoes nothing.
func wholeLedger(l state.Ledger) state.Desired {
	var all state.Desired
	for _, e := range l.Entries {
		all = append(all, state.Item{Step: e.Step, Resource: e.Ours.Resource})
	}
	return all
}

// minorChanges tells whether two configurations have different minor versions of Kubernetes: only
// then must the pods move away (Kubernetes supports nothing else).
func minorChanges(from, to config.Config) bool {
	minor := func(version string) string {
		i := strings.LastIndex(version, ".")
		return version[:max(i, 0)]
	}
	return minor(from.Kubernetes.Version) != minor(to.Kubernetes.Version)
}

// firstLine is the first line of a text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
