package change

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Reconcile brings the machine to a target, which was determined without the lock, as are all
// checks that are possible before any change.
func Reconcile(ctx context.Context, h *Home, verb string, t *Target) error {
	first := h.Saved.Transition == nil || h.Saved.Transition.Kind == transition.Join
	full := false
	if first {
		err := preflight(ctx, h, t)
		unfit, _ := errors.AsType[*health.Error](err)
		full = unfit != nil && unfit.Conditions[0].Type == "DiskSpace" && h.Saved.Applied != nil
		if err != nil && !full {
			return err
		}
	} else if err := findAgain(ctx, h, t); err != nil {
		h.Log.Warn("cannot find the API server again", "error", err)
	}
	view := h.view
	h, err := OpenLocked(ctx, h.Agent, verb)
	if err != nil {
		return err
	}
	defer h.Close()
	h.view = view
	if full && h.Saved.Transition == nil { // a failed change may have left downloads
		inspect.LogError(h.Log, "cannot free space", collect(ctx, h, h.Saved.Applied))
	}
	if t, err = aimAgain(ctx, h, t); err != nil {
		return err
	}
	back := h.Saved.Transition != nil && h.Saved.Transition.GoesBack()
	if !t.Daemon && !back { // a person has asked, so retry what was rejected
		err = h.Store.Forgive(ctx, t.Received)
	}
	if err == nil && !t.standing {
		err = h.Store.Want(ctx, t.Received)
	}
	if err != nil {
		return err
	}
	return Settle(ctx, h, t, full || !first)
}

// Settle carries out the next transitions until the target is reached; nil is an unreadable
// document. checks runs the preflight before a new one, unless it restores a half-changed node.
func Settle(ctx context.Context, h *Home, t *Target, checks bool) error {
	for {
		s, err := Situation(h, t)
		if err != nil {
			return err
		}
		d := transition.Next(s)
		h.Log.Debug("decided", "move", d.Move, "kind", d.Kind, "why", d.Why)
		switch d.Move {
		case transition.Halt:
			return errors.New(d.Why)
		case transition.Rest:
			return Rest(ctx, h, t, s)
		case transition.Revert:
			r, _ := h.Saved.Rejected.OfGeneration(h.Saved.Transition.To)
			back := h.Saved.Transition.Back(errors.New(r.Reason), inspect.Stamp())
			return errors.Join(rejected(r), run(ctx, h, back, ""))
		case transition.Begin:
			if d.Kind == transition.Repair && s.Wanted != transition.Current {
				err := run(ctx, h, following(h, d), "")
				if err == nil || s.Wanted == transition.Rejected {
					err = errors.Join(Rest(ctx, h, t, s), err)
				}
				return err
			}
			if half := d.Follows != "" && d.Follows != transition.Leave; checks && (!half || d.To == "") {
				if err := preflight(ctx, h, t); err != nil {
					_, unfit := errors.AsType[*health.Error](err)
					refused := half && unfit || d.Follows != "" && Verdict(err).Kind == transition.Refused
					if refused && s.Applied != "" { // finish the record, or restore the applied node
						s.Wanted = transition.Rejected
						d = transition.Next(s)
						left := following(h, d)
						if d.Move == transition.Continue {
							left = *h.Saved.Transition
						}
						if failed := run(ctx, h, left, ""); failed != nil {
							return failed
						}
					}
					return err
				}
			}
			err := pursue(ctx, h, t, d)
			if err == nil && d.To != "" && s.Wanted != transition.Current {
				err = Rest(ctx, h, t, s)
			}
			return err
		}
		if err := carryOn(ctx, h, t, s.Leads, d.Until); err != nil || t == nil || s.Leads {
			return err
		}
		if t, err = aimAfter(ctx, h, t); err != nil {
			return err
		}
	}
}

// Situation returns the input for the decision on the next transition.
func Situation(h *Home, t *Target) (transition.Situation, error) {
	s := transition.Situation{
		Record: h.Saved.Transition, Applied: h.Saved.AppliedID(), Wanted: transition.Unreadable,
	}
	if h.Saved.Transition != nil {
		_, s.Failed = h.Saved.Rejected.OfGeneration(h.Saved.Transition.To)
	}
	if t == nil {
		return s, nil
	}
	s.Asked, s.Waits = !t.Daemon, t.Waits != nil
	s.Moved = movedTo(h, bindingsFor(h, t)) != nil
	from, _ := h.Records().Source() // a damaged one names no version
	s.Followed = t.Input.Resource != nil && from.Given != t.Input.Resource.ConfigVersion &&
		h.Saved.Applied != nil && h.Saved.Applied.Config.ContinuousMonitoring
	switch _, failed := rejectionOf(h, t); {
	case t.unchanged:
		s.Wanted = transition.Current
	case failed:
		s.Wanted = transition.Rejected
	default:
		s.Wanted = transition.New
	}
	r := h.Saved.Transition
	if r == nil || r.Kind != transition.Join && r.Kind != transition.Change {
		return s, nil
	}
	to, err := h.Saved.Generations.Load(r.To)
	if errors.Is(err, generation.ErrDamaged) {
		return s, nil
	}
	s.Leads = err == nil && to.Received == t.Received
	return s, err
}

// Rest ends a run that has nothing to do. A check determines whether the node is healthy. Rest
// records the uid of a cluster that did not answer when its node joined.
func Rest(ctx context.Context, h *Home, t *Target, s transition.Situation) error {
	switch {
	case s.Wanted == transition.Rejected:
		r, _ := rejectionOf(h, t)
		return rejected(r)
	case s.Wanted == transition.New:
		at := t.Waits.NextAttempt
		later := &transition.Outcome{Kind: transition.Waits, RetryAt: at, Err: errors.New(
			t.Waits.Message + "; next attempt by " + at.UTC().Format(time.RFC3339))}
		if t.Waits.Reason == health.DrainBlocked {
			later.Every = askPause
		}
		return later
	}
	if h.Saved.Bindings.ClusterUID != "" || !h.Saved.Joined() || h.Saved.Applied == nil {
		return nil
	}
	h.Saved.Bindings.ClusterUID = learnCluster(ctx, h, h.Saved.ConfigOf(h.Saved.Applied), h.Saved.At())
	return h.Store.SaveBindings(ctx)
}

func carryOn(ctx context.Context, h *Home, t *Target, leads bool, until transition.Phase) error {
	left := *h.Saved.Transition
	h.Log.Info("continuing an interrupted run", "kind", left.Kind, "phase", left.Phase)
	if leads {
		if err := renewOnboarding(ctx, h, left.To, t.Input.Config); err != nil {
			return err
		}
		to := movedTo(h, bindingsFor(h, t))
		if to != nil && (left.Cluster == nil || *to != *left.Cluster) {
			left.Cluster, left.Phase = to, "" // restart, with the new address
		}
		if !t.Daemon {
			left.Asks = ""
		}
	}
	return run(ctx, h, left, until)
}

func aimAfter(ctx context.Context, h *Home, t *Target) (*Target, error) {
	if h.Saved.Transition == nil {
		h.Note("finished what another run had started")
	}
	if err := h.Read(ctx); err != nil {
		return t, err
	}
	t, err := aimAgain(ctx, h, t)
	if err != nil || t.Daemon {
		return t, err
	}
	return t, h.Store.Forgive(ctx, t.Received) // it was held back by the finished rollback
}

func following(h *Home, d transition.Decision) transition.Transition {
	return transition.Transition{
		Kind: d.Kind, From: h.Saved.AppliedID(), To: d.To, Began: inspect.Stamp(),
		Follows: d.Follows, Touched: d.Touched, Cordoned: d.Cordoned,
		Unpressed: d.Touched && h.Saved.Transition.Unpressed,
	}
}

func pursue(ctx context.Context, h *Home, t *Target, d transition.Decision) error {
	if err := unknownFirewalls(t); err != nil {
		return err
	}
	b := bindingsFor(h, t)
	next := following(h, d)
	if next.Kind == transition.Repair {
		h.Saved.Bindings.ForeignCNI, h.Saved.Bindings.Program = b.ForeignCNI, b.Program
		if !Credentialed(h) { // it joins again
			h.Saved.Secrets[h.Saved.Applied.ID] = t.Input.Config.Credentials()
			if err := h.Store.SaveSecrets(ctx); err != nil {
				return err
			}
		}
		return run(ctx, h, next, "")
	}
	next.Cluster = movedTo(h, b)
	to := h.Saved.Applied
	if d.To == "" {
		var err error
		if to, _, err = resolve(ctx, h, t); err != nil {
			return err
		}
	}
	if foreign := b.ForeignCNI; len(foreign) > 0 {
		h.Warn("%s already has a pod network (%s); the node's own is not installed",
			t.Input.Config.Paths.CNI.ConfDir, strings.Join(foreign, ", "))
	}
	next.To = to.ID
	if d.Asks && h.Saved.Applied.Config.Disturbs(to.Config) {
		next.Asks = t.Input.Resource.ConfigVersion
	}
	if next.Kind == transition.Change {
		next.Drains = h.Saved.Applied.Config.Drains(to.Config)
	}
	if next.Kind == transition.Change && !next.Touched { // else what runs may be of any generation
		if err := collect(ctx, h, to); err != nil { // refused changes have left generations
			h.Warn("cannot remove what is no longer needed: %v", err)
		}
	}
	if d.To == "" || t.unchanged {
		h.Saved.Secrets[to.ID] = t.Input.Config.Credentials()
	}
	return inTurn(ctx,
		func(ctx context.Context) error { return withAdmin(ctx, h, t.Input.Config, to) },
		func(ctx context.Context) error { return announce(ctx, h, next, to, b) },
		func(ctx context.Context) error { return run(ctx, h, next, "") })
}

// FollowCluster finds the applied node's API server again, and makes the node follow it.
func FollowCluster(ctx context.Context, h *Home) error {
	t, err := Aim(ctx, h, Input{Config: h.Saved.ConfigOf(h.Saved.Applied)})
	if err != nil {
		return err
	}
	t.Daemon, t.standing = true, true
	t.Received, t.unchanged = h.Saved.Applied.Received, true
	if err := findAgain(ctx, h, t); err != nil || !t.moved {
		return err
	}
	return Reconcile(ctx, h, "agent", t)
}

// sameFacts reports whether two sets of facts about this machine are equal, except for the
// artifacts and the size, which varies slightly between kernels.
func sameFacts(a, b node.Facts) bool {
	a.Store, b.Store = nil, nil
	a.Processors, b.Processors, a.Memory, b.Memory = 0, 0, 0, 0
	one, err1 := apply.Encode(a)
	two, err2 := apply.Encode(b)
	return errors.Join(err1, err2) == nil && one == two
}
