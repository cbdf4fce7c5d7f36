package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// reconcile leads the machine to a target, which was aimed at without the lock: what can be found
// out before anything is touched is found out without it, too.
func (h *home) reconcile(ctx context.Context, verb string, t *target, view *steps) error {
	first := h.saved.Transition == nil || h.saved.Transition.Kind == transition.Join
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
	back := h.saved.Transition != nil && h.saved.Transition.GoesBack()
	if !t.daemon && !back { // a person has asked, so what was rejected is tried again
		if err := h.saved.Forgive(ctx, t.received); err != nil {
			return err
		}
	}
	if !t.standing {
		if err := h.saved.Want(ctx, t.received); err != nil {
			return err
		}
	}
	return h.settle(ctx, t, !first, view)
}

// settle carries out what comes next, until the target is reached or nothing more can be done. A
// target that is nil is an unreadable configuration. A transition that begins is preceded by the
// preflight, if that is due.
func (h *home) settle(ctx context.Context, t *target, preflight bool, view *steps) error {
	for {
		s, err := h.situation(t)
		if err != nil {
			return err
		}
		d := transition.Next(s)
		h.Log.Debug("decided", "move", d.Move, "kind", d.Kind, "why", d.Why)
		switch d.Move {
		case transition.Halt:
			return errors.New(d.Why)
		case transition.Rest:
			return h.rest(ctx, t, s)
		case transition.Revert:
			r, _ := h.saved.Rejected.OfGeneration(h.saved.Transition.To)
			back := h.saved.Transition.Back(errors.New(r.Reason), stamp())
			return errors.Join(&RejectedError{r}, h.run(ctx, back, "", view))
		case transition.Begin:
			if s.Wanted == transition.Rejected {
				r, _ := h.rejectionOf(t)
				return errors.Join(&RejectedError{r}, h.run(ctx, h.following(d), "", view))
			}
			if preflight {
				if err := h.preflight(ctx, t); err != nil {
					return err
				}
			}
			return h.pursue(ctx, t, d, view)
		}
		if err := h.carryOn(ctx, t, s.Leads, d.Until, view); err != nil || t == nil || s.Leads {
			return err
		}
		if t, err = h.aimAfter(ctx, t); err != nil {
			return err
		}
	}
}

// situation is all that decides which transition comes next.
func (h *home) situation(t *target) (transition.Situation, error) {
	s := transition.Situation{Record: h.saved.Transition, Wanted: transition.Unreadable}
	if h.saved.Applied != nil {
		s.Applied = h.saved.Applied.ID
	}
	if h.saved.Transition != nil {
		_, s.Failed = h.saved.Rejected.OfGeneration(h.saved.Transition.To)
	}
	if t == nil {
		return s, nil
	}
	s.Asked, s.Waits = !t.daemon, t.waits != nil
	s.Moved = h.movedTo(h.bindingsFor(t)) != nil
	_, rejected := h.rejectionOf(t)
	switch {
	case t.unchanged:
		s.Wanted = transition.Current
	case rejected:
		s.Wanted = transition.Rejected
	default:
		s.Wanted = transition.New
	}
	var err error
	r := h.saved.Transition
	if r != nil && (r.Kind == transition.Join || r.Kind == transition.Change) {
		s.Leads, err = h.isFor(*r, t)
	}
	return s, err
}

// rest ends a run that has nothing to do. Whether the node is healthy is for a check.
func (h *home) rest(ctx context.Context, t *target, s transition.Situation) error {
	switch {
	case s.Wanted == transition.Rejected:
		r, _ := h.rejectionOf(t)
		return &RejectedError{r}
	case s.Wanted == transition.New:
		later := &daemon.LaterError{Why: t.waits.Message, At: t.waits.NextAttempt}
		if t.waits.Reason == health.DrainBlocked {
			later.Every = askPause
		}
		return later
	}
	return h.knowCluster(ctx)
}

// carryOn continues the transition that another run has left.
func (h *home) carryOn(
	ctx context.Context, t *target, leads bool, until transition.Phase, view *steps,
) error {
	left := *h.saved.Transition
	h.Log.Info("continuing what another run has left", "kind", left.Kind, "phase", left.Phase)
	if leads {
		if err := h.renewOnboarding(ctx, left.To, t.input.Config); err != nil {
			return err
		}
		to := h.movedTo(h.bindingsFor(t))
		if to != nil && (left.Cluster == nil || *to != *left.Cluster) {
			left.Cluster, left.Phase = to, "" // from the start, with the other address
		}
	}
	return h.run(ctx, left, until, view)
}

// aimAfter aims again at a target after a transition that came first.
func (h *home) aimAfter(ctx context.Context, t *target) (*target, error) {
	if h.saved.Transition == nil {
		h.note("the rollback that another run had begun is finished")
	}
	if err := h.read(ctx); err != nil {
		return t, err
	}
	t, err := h.aimAgain(ctx, t)
	if err != nil || t.daemon {
		return t, err
	}
	return t, h.saved.Forgive(ctx, t.received) // a rollback that was finished holds it back
}

// following is the transition that a decision begins.
func (h *home) following(d transition.Decision) transition.Transition {
	t := transition.Transition{
		Kind: d.Kind, To: d.To, Began: stamp(),
		Follows: d.Follows, Touched: d.Touched, Cordoned: d.Cordoned,
	}
	if h.saved.Applied != nil {
		t.From = h.saved.Applied.ID
	}
	return t
}

// pursue makes the transition that leads to a target, and carries it out.
func (h *home) pursue(
	ctx context.Context, t *target, d transition.Decision, view *steps,
) error {
	if err := unknownFirewalls(t); err != nil {
		return err
	}
	b := h.bindingsFor(t)
	next := h.following(d)
	if next.Kind == transition.Repair {
		return h.makeAgain(ctx, t, b, next, view)
	}
	next.Cluster = h.movedTo(b)
	to := h.saved.Applied
	if d.To == "" {
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
	next.To = to.ID
	if next.Kind == transition.Change {
		next.Drains = drains(h.saved.Applied.Config, to.Config)
	}
	h.saved.Secrets[to.ID] = t.input.Config.Credentials()
	if err := h.withAdmin(ctx, t.input.Config, to); err != nil {
		return err
	}
	if err := h.announce(ctx, next, to, b, view); err != nil {
		return err
	}
	return h.run(ctx, next, "", view)
}

// makeAgain makes the machine again what was applied. A kubelet that has lost its credential joins
// again, with the bootstrap token that is in the configuration now.
func (h *home) makeAgain(
	ctx context.Context, t *target, b saved.Bindings, next transition.Transition, view *steps,
) error {
	h.saved.Bindings.ForeignCNI, h.saved.Bindings.Program = b.ForeignCNI, b.Program
	if !h.credentialed(h.saved.Applied.Config) {
		h.saved.Secrets[h.saved.Applied.ID] = t.input.Config.Credentials()
		if err := h.saved.SaveSecrets(ctx); err != nil {
			return err
		}
	}
	return h.run(ctx, next, "", view)
}

// drains reports whether the pods move away before one configuration replaces another: the minor
// version of Kubernetes or the major version of containerd is another one.
func drains(from, to config.Config) bool {
	minor := func(version string) string {
		i := strings.LastIndex(version, ".")
		return version[:max(i, 0)]
	}
	major := func(version string) string { v, _, _ := strings.Cut(version, "."); return v }
	return to.Agent.UpgradePolicy.Drains(
		minor(from.Kubernetes.Version) != minor(to.Kubernetes.Version) ||
			major(from.Containerd.Version) != major(to.Containerd.Version))
}

// followCluster finds the API server of the applied generation again, whatever document is wanted,
// and reports whether the node has followed it to another address or CA.
func (h *home) followCluster(ctx context.Context) (bool, error) {
	t, err := h.aim(ctx, Input{Config: h.saved.ConfigOf(h.saved.Applied)})
	if err != nil {
		return false, err
	}
	t.daemon, t.standing = true, true
	t.received, t.unchanged = h.saved.Applied.Received, true
	if err := h.follow(ctx, t); err != nil || !t.moved {
		return false, err
	}
	return true, h.reconcile(ctx, "agent", t, &steps{agent: h.Agent})
}

// sameFacts reports whether two sets of facts about this machine are equal, but for the artifacts.
func sameFacts(a, b node.Facts) bool {
	a.Store, b.Store = nil, nil
	one, err1 := saved.Encode(a)
	two, err2 := saved.Encode(b)
	return errors.Join(err1, err2) == nil && one == two
}
