package change

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// The pauses of a change whose drain was blocked: between checks whether the pods could be evicted
// now, and before the next drain if they could not.
const askPause, drainHold = 30 * time.Second, time.Hour

// errSilent reports an API server that did not answer before any change.
var errSilent = errors.New("the API server does not answer")

func forgetWaiting(ctx context.Context, a *Agent) {
	inspect.LogError(a.Log, "cannot remove why a change waited",
		VolatileWriter(a).Remove(ctx, inspect.WaitingFile))
}

// NoteWaiting records why the change to a target waits after an attempt. An attempt that another
// verb or a signal has ended changes nothing, nor does a person's that has begun nothing.
func NoteWaiting(ctx context.Context, a *Agent, t *Target, err error) {
	kind := Verdict(err).Kind
	var next health.Waiting
	switch {
	case kind == transition.Busy || ctx.Err() != nil:
		return
	case kind == transition.Done || kind == transition.Refused || t.unchanged:
		forgetWaiting(ctx, a)
		return
	case kind == transition.Waits && t.Waits != nil:
		next = *t.Waits
	default:
		next = reasonOf(err)
	}
	var left transition.Transition
	underWay, err := a.Records().Load(saved.TransitionFile, &left)
	if !t.Daemon && next.Reason != health.DrainBlocked && !underWay && err == nil {
		return
	}
	next.Received, next.Since = t.Received, inspect.Stamp()
	before := inspect.ReadWaiting(&a.Env)
	if before != nil && before.Received == next.Received && before.Reason == next.Reason {
		next.Since = before.Since
	}
	inspect.LogError(a.Log, "cannot record why a change waits",
		VolatileWriter(a).Save(ctx, inspect.WaitingFile, next))
}

// reasonOf returns the Waiting of a change that failed for a possibly temporary reason.
func reasonOf(err error) health.Waiting {
	w := health.Waiting{
		Reason: health.AttemptFailed, Message: err.Error(), Owner: health.OwnerMachine,
		NextAttempt: inspect.Stamp().Add(transition.RetryWithin),
	}
	drain, blocked := errors.AsType[*kube.DrainError](err)
	download, failed := errors.AsType[*artifact.Error](err)
	unfit, refused := errors.AsType[*health.Error](err)
	unready, late := errors.AsType[*health.UnhealthyError](err)
	_, fault := errors.AsType[*kube.Fault](err)
	hold, asked := errors.AsType[*transition.HoldError](err)
	switch {
	case asked && hold.Hold == "":
		w.Reason, w.Owner = health.ProviderSilent, health.OwnerCluster
	case asked:
		w.Reason, w.Owner, w.NextAttempt = health.ChangeHeld, health.OwnerConfiguration, hold.RetryAt
	case blocked:
		w.Reason, w.Message, w.Owner = health.DrainBlocked, drain.Error(), health.OwnerWorkload
		w.NextAttempt = inspect.Stamp().Add(drainHold)
	case failed:
		w.Reason = health.DownloadFailed
		if !download.Local() {
			w.Owner = health.OwnerNetwork
		}
	case refused:
		w.Reason, w.Owner = health.PreflightFailed, unfit.Conditions[0].Owner
		if unfit.Conditions[0].Type == health.APIServerReachable {
			w.Reason = health.APIServerSilent
		}
	case late:
		w.Owner = unready.Condition.Owner
	case fault, errors.Is(err, errSilent), errors.Is(err, transition.ErrUndecided):
		w.Reason, w.Owner = health.APIServerSilent, health.OwnerNetwork
	}
	return w
}

// Closed returns a Waiting while the maintenance window of a provider's changes is closed, except
// for one that the provider would not be asked for, such as the cluster's new CA.
func Closed(h *Home, t *Target) *health.Waiting {
	window, is := t.Input.Config.Agent.UpgradePolicy.MaintenanceWindow, h.Saved.Applied
	if window == nil || t.Input.Resource == nil || is != nil && !is.Config.Disturbs(t.Input.Config) {
		return nil
	}
	opens := window.Opens(time.Now())
	if !opens.After(time.Now()) {
		return nil
	}
	return &health.Waiting{
		Reason: health.WindowClosed, Owner: health.OwnerConfiguration, NextAttempt: opens,
		Message: "the maintenance window is closed; `aks-flex-node bootstrap` applies the change now",
	}
}

// Held returns the blocked drain of a change, until the pods could be evicted or the next attempt
// is due. It removes the record of another change.
func Held(ctx context.Context, h *Home, t *Target) *health.Waiting {
	w := inspect.ReadWaiting(h.Node.Env)
	switch {
	case w == nil:
		return nil
	case w.Received != t.Received:
		forgetWaiting(ctx, h.Agent)
		return nil
	case w.Reason != health.DrainBlocked || h.Saved.Applied == nil ||
		!time.Now().Before(w.NextAttempt):
		return nil
	}
	err := canDrain(ctx, h, t.Input.Config)
	if err == nil {
		forgetWaiting(ctx, h.Agent)
		return nil
	}
	if drain, ok := errors.AsType[*kube.DrainError](err); ok {
		w.Message = drain.Error()
	}
	return w
}

func canDrain(ctx context.Context, h *Home, c config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, askPause)
	defer cancel()
	client, err := access.Client(ctx, h.Node, h.Saved.ConfigOf(h.Saved.Applied), h.Saved.At())
	if err != nil {
		return err
	}
	defer client.Close()
	return client.CanDrain(ctx, h.Saved.Applied.Config.Agent.NodeName, drainOptions(h.Agent, c))
}

func drainOptions(a *Agent, c config.Config) kube.DrainOptions {
	o := c.Agent.UpgradePolicy.DrainOptions
	return kube.DrainOptions{DeleteEmptyDir: o.DeletesEmptyDir(), Force: o.Force, Progress: a.Alive}
}

// VolatileWriter returns the writer of the records that do not survive a reboot.
func VolatileWriter(a *Agent) apply.Writer {
	return apply.Writer{Disk: a.Machine, Dir: saved.RunDir}
}

// SetPause pauses the agent's own changes and repairs for a time; 0 ends the pause.
func SetPause(
	ctx context.Context, a *Agent, length time.Duration, reason string,
) (*saved.Pause, error) {
	h, err := OpenReadOnly(ctx, a)
	if err != nil {
		return nil, err
	}
	if h.Saved.Live == nil {
		return nil, inspect.ErrNoNode
	}
	if length == 0 {
		return nil, h.Store.Remove(ctx, saved.PauseFile)
	}
	now := inspect.Stamp()
	p := &saved.Pause{Since: now, Until: now.Add(length), Reason: reason}
	return p, h.Store.Save(ctx, saved.PauseFile, p)
}

// Paused returns a Waiting if the machine is paused, else nil.
func Paused(a *Agent) *health.Waiting {
	p := inspect.Pause(&a.Env)
	if p == nil {
		return nil
	}
	return &health.Waiting{
		Reason: health.MachinePaused, Owner: health.OwnerMachine, NextAttempt: p.Until,
		Message: fmt.Sprintf("%s; `aks-flex-node resume` ends the pause",
			health.PauseText(p.Until, p.Reason)),
	}
}
