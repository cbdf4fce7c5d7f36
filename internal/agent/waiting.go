package agent

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// waitingFile is below RunDir: a machine that has booted waits for nothing.
const waitingFile = "waiting.json"

// The pauses of a change whose drain was blocked: between two questions whether the pods could move
// away now, and before the next drain where the answer is not yes.
const (
	askPause  = 30 * time.Second
	drainHold = time.Hour
)

// waiting is why the change to a document waits.
type waiting struct {
	health.Waiting
	// Received is the digest of the document.
	Received string `json:"received"`
}

// errSilent reports an API server that does not answer before anything is touched.
var errSilent = errors.New("the API server does not answer")

func (a *Agent) volatile() saved.Records {
	return saved.Records{Disk: a.Machine, Dir: saved.RunDir}
}

// readWaiting returns why a change waits; nil when none does.
func (a *Agent) readWaiting() *waiting {
	var w waiting
	found, err := a.volatile().Load(waitingFile, &w)
	if err != nil {
		a.Log.Warn("cannot read why a change waits", "error", err)
	}
	if !found || err != nil {
		return nil
	}
	return &w
}

// waitingEvidence returns why a change waits, as a condition reads it.
func (a *Agent) waitingEvidence() *health.Waiting {
	if w := a.readWaiting(); w != nil {
		return &w.Waiting
	}
	return nil
}

// forgetWaiting removes the record: nothing waits.
func (a *Agent) forgetWaiting(ctx context.Context) {
	if err := a.volatile().Remove(ctx, waitingFile); err != nil {
		a.Log.Warn("cannot remove why a change waited", "error", err)
	}
}

// waitingText returns why a change waits as the end of a sentence.
func (a *Agent) waitingText() string {
	w := a.readWaiting()
	if w == nil {
		return ""
	}
	return " and waits: " + daemon.FirstLine(w.Message)
}

// noteWaiting records why the change to a target waits after an attempt that ended with err, the
// verdict on it. An attempt that another verb or a signal has ended leaves the record unchanged,
// and so does a person's that has begun nothing.
func (a *Agent) noteWaiting(ctx context.Context, t *target, err error) {
	_, busy := errors.AsType[*daemon.BusyError](err)
	_, final := errors.AsType[*daemon.FinalError](err)
	_, later := errors.AsType[*daemon.LaterError](err)
	next := waiting{Received: t.received}
	switch {
	case busy || ctx.Err() != nil:
		return
	case err == nil || final || t.unchanged:
		a.forgetWaiting(ctx)
		return
	case later && t.waits != nil:
		next.Waiting = *t.waits
	default:
		next.Waiting = reasonOf(err)
	}
	if !t.daemon && next.Reason != health.DrainBlocked && !a.underWay() {
		return
	}
	next.Since = stamp()
	before := a.readWaiting()
	if before != nil && before.Received == next.Received && before.Reason == next.Reason {
		next.Since = before.Since
	}
	if err := a.volatile().Save(ctx, waitingFile, next); err != nil {
		a.Log.Warn("cannot record why a change waits", "error", err)
	}
}

// underWay reports whether a transition is left.
func (a *Agent) underWay() bool {
	var left transition.Transition
	found, err := saved.Records{Disk: a.Machine, Dir: saved.StateDir}.Load(saved.TransitionFile, &left)
	return found || err != nil
}

// reasonOf returns why a change waits that has failed for a cause that may pass.
func reasonOf(err error) health.Waiting {
	w := health.Waiting{
		Reason: health.AttemptFailed, Message: err.Error(), Owner: health.OwnerMachine,
		NextAttempt: stamp().Add(daemon.RetryWithin),
	}
	drain, blocked := errors.AsType[*kube.DrainError](err)
	download, failed := errors.AsType[*artifact.Error](err)
	unfit, refused := errors.AsType[*health.Error](err)
	unready, late := errors.AsType[*UnhealthyError](err)
	_, fault := errors.AsType[*kube.Fault](err)
	switch {
	case blocked:
		w.Reason, w.Message, w.Owner = health.DrainBlocked, drain.Error(), health.OwnerWorkload
		w.NextAttempt = stamp().Add(drainHold)
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

// closed returns that the maintenance window is closed in which a node is changed for its provider;
// nil where the target need not wait.
func closed(t *target) *health.Waiting {
	window := t.input.Config.Agent.UpgradePolicy.MaintenanceWindow
	if window == nil || t.input.Resource == nil {
		return nil
	}
	opens := window.Opens(now())
	if !opens.After(now()) {
		return nil
	}
	return &health.Waiting{
		Reason: health.WindowClosed, Owner: health.OwnerConfiguration, NextAttempt: opens,
		Message: "the maintenance window is closed; `aks-flex-node bootstrap` applies the change now",
	}
}

// held returns the blocked drain of the change to a target, as long as it holds the change: until
// the pods could move away, or the next attempt is due. It forgets why another change waits.
func (h *home) held(ctx context.Context, t *target) *health.Waiting {
	w := h.readWaiting()
	switch {
	case w == nil:
		return nil
	case w.Received != t.received:
		h.forgetWaiting(ctx)
		return nil
	case w.Reason != health.DrainBlocked || h.saved.Applied == nil || !now().Before(w.NextAttempt):
		return nil
	}
	err := h.canDrain(ctx, t.input.Config)
	if err == nil {
		h.forgetWaiting(ctx)
		return nil
	}
	if drain, ok := errors.AsType[*kube.DrainError](err); ok {
		w.Message = drain.Error()
	}
	return &w.Waiting
}

// canDrain reports whether the pods could move away now.
func (h *home) canDrain(ctx context.Context, c config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, askPause)
	defer cancel()
	client, err := h.kubeletClient(ctx, h.saved.ConfigOf(h.saved.Applied), h.saved.At())
	if err != nil {
		return err
	}
	defer client.Close()
	return client.CanDrain(ctx, h.saved.Applied.Config.Agent.NodeName, h.drainOptions(c))
}

// drainOptions returns which pods move away before a configuration replaces another.
func (a *Agent) drainOptions(c config.Config) kube.DrainOptions {
	o := c.Agent.UpgradePolicy.DrainOptions
	return kube.DrainOptions{
		DeleteEmptyDir: o.DeletesEmptyDir(), Force: o.Force, Progress: a.beat,
	}
}
