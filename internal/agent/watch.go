package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Watcher is this machine under the daemon: what the daemon's worker does (daemon.Node).
type Watcher struct {
	Agent *Agent
	// Load reads the configuration as it is now.
	Load func() (Input, error)
	// Follows is how this machine follows its resource; nil when it is from none.
	Follows *Following

	// node tells that this machine has been seen as a node, or on its way to be one.
	node bool
	// refused is why the configuration is not in force, nil when it is.
	refused *health.Rejection
	logged  string
	// last is the status of the last check that has not failed; nil before it.
	last *Status
	// drifting is what the last check has found, unpublished why metrics cannot be published.
	drifting    map[string]bool
	unpublished string
}

// Claim makes this process the one daemon of the machine. The claim ends with the process.
func (a *Agent) Claim() error {
	l, err := a.acquire(saved.DaemonLockFile, "agent")
	if err != nil {
		return err
	}
	a.claimed = l
	return nil
}

// Reconcile makes the machine the node that its configuration describes now, and finishes what
// another run has left unfinished, also when the configuration cannot be read. It does nothing to a
// node that is as configured: whether that is healthy is for a check.
func (w *Watcher) Reconcile(ctx context.Context) error {
	err := w.reconcile(ctx)
	final, refused := errors.AsType[*daemon.FinalError](err)
	switch {
	case err == nil:
		w.refused = nil
	case refused && (w.refused == nil || w.refused.Reason != final.Error()):
		w.refused = &health.Rejection{Version: "file", Reason: final.Error(), At: now()}
	}
	return err
}

func (w *Watcher) reconcile(ctx context.Context) error {
	h, err := w.Agent.openReadOnly(ctx)
	if err != nil {
		return err
	}
	if w.left(h) {
		return daemon.ErrLeft
	}
	in, err := w.Load()
	if h.saved.Transition != nil && h.saved.Transition.Kind == transition.Leave {
		return w.finishLeaving(ctx, *h.saved.Transition, in)
	}
	var unfollowed error
	if h.saved.Idle() && h.saved.Applied != nil {
		followed := false
		followed, unfollowed = h.followCluster(ctx)
		if followed {
			again, err := w.Agent.openReadOnly(ctx)
			if err != nil {
				return verdict(errors.Join(unfollowed, err))
			}
			h = again
		}
	}
	if err != nil {
		return verdict(errors.Join(err, unfollowed, w.resume(ctx, h)))
	}
	t, err := h.aim(ctx, in)
	if err != nil {
		return err
	}
	t.daemon, t.waits = true, closed(t)
	if t.waits == nil {
		t.waits = h.held(ctx, t)
	}
	if err := w.want(ctx, h, t.received); err != nil {
		return verdict(err)
	}
	done, err := w.resting(ctx, h, t)
	if done {
		err = errors.Join(err, unfollowed)
	} else {
		if unfollowed != nil { // the new configuration may be the cure
			w.Agent.Log.Warn("cannot find the API server again", "error", unfollowed)
		}
		err = w.lead(ctx, h, t)
	}
	err = verdict(err)
	w.Agent.noteWaiting(ctx, t, err)
	return err
}

// lead leads the machine to a target.
func (w *Watcher) lead(ctx context.Context, h *home, t *target) error {
	err := h.reconcile(ctx, "agent", t, &steps{agent: w.Agent})
	if errors.Is(err, transition.ErrSuperseded) {
		w.node = true // it was on its way when another verb took over
	}
	if err == nil {
		err = w.Agent.noteApplied(ctx, t.input.Resource)
	}
	return err
}

// resting reports whether a node rests with this target, without the lock, and how that ends.
func (w *Watcher) resting(ctx context.Context, h *home, t *target) (bool, error) {
	s, err := h.situation(t)
	if err != nil || transition.Next(s).Move != transition.Rest {
		return err != nil, err
	}
	if s.Wanted == transition.Current {
		return true, w.Agent.noteApplied(ctx, t.input.Resource)
	}
	return true, h.rest(ctx, t, s)
}

// left tells that the machine was a node and is none any more: somebody has run unbootstrap.
func (w *Watcher) left(h *home) bool {
	is := h.saved.Live != nil || h.engine.Journal.Exists()
	left := w.node && !is
	w.node = w.node || is
	return left
}

// want notes which document is wanted now.
func (w *Watcher) want(ctx context.Context, before *home, received string) error {
	if !before.saved.Outdated(received) {
		return nil
	}
	h, err := w.Agent.openLocked(ctx, "agent")
	if err != nil {
		return err
	}
	defer h.close()
	return h.saved.Want(ctx, received)
}

// resume finishes what another run has left, without a configuration.
func (w *Watcher) resume(ctx context.Context, before *home) error {
	if before.saved.Transition == nil {
		return nil
	}
	h, err := w.Agent.openLocked(ctx, "agent")
	if err != nil {
		return err
	}
	defer h.close()
	switch {
	case h.saved.Transition == nil:
		return nil
	case h.saved.Transition.Kind == transition.Leave:
		return transition.ErrSuperseded
	}
	return h.settle(ctx, nil, false, &steps{agent: w.Agent})
}

// finishLeaving goes on with an unbootstrap that was interrupted. in is the configuration if it can
// be read: it may say who speaks to Azure.
func (w *Watcher) finishLeaving(ctx context.Context, t transition.Transition, in Input) error {
	how := Leave{}
	if t.Leave != nil {
		how.Options = *t.Leave
	}
	var given *config.Config
	if in.Config.Agent.NodeName != "" {
		given = &in.Config
	}
	if _, err := w.Agent.Unbootstrap(ctx, given, how); err != nil {
		return verdict(err)
	}
	if how.Waits {
		return daemon.ErrDeleted
	}
	return daemon.ErrLeft
}

// deletedDrain is how long pods may take to move away from a node whose resource was deleted.
const deletedDrain = time.Minute

// Leave gives the machine back, since its owner has deleted the resource. The service remains, and
// waits for another configuration.
func (w *Watcher) Leave(ctx context.Context) error {
	how := Leave{Options: transition.Options{
		DrainTimeout: deletedDrain, Waits: true, Deleted: w.Follows.Resource.UID,
	}}
	var given *config.Config
	if in, err := w.Load(); err == nil { // it may say who speaks to Azure
		given = &in.Config
	}
	_, err := w.Agent.Unbootstrap(ctx, given, how)
	return verdict(err)
}

// verdict returns an error that says whether trying again can help.
func verdict(err error) error {
	_, back := errors.AsType[*transition.RolledBackError](err)
	_, refused := errors.AsType[*transition.RefusedError](err)
	_, locked := errors.AsType[*saved.LockedError](err)
	_, changing := errors.AsType[*UnderWayError](err)
	_, unfit := errors.AsType[*health.Error](err)
	_, rejected := errors.AsType[*RejectedError](err)
	_, invalid := errors.AsType[config.Problems](err)
	switch {
	case err == nil:
		return nil
	case locked, changing, errors.Is(err, transition.ErrSuperseded):
		return &daemon.BusyError{Err: err}
	case back, refused, rejected, invalid:
		return &daemon.FinalError{Err: err}
	case unfit && !retryable(err):
		return &daemon.FinalError{Err: err}
	}
	return err
}

// retryable tells whether a preflight that failed may pass later by itself: what the network or the
// cluster is at fault for may; what the configuration is at fault for does not.
func retryable(err error) bool {
	failed, _ := errors.AsType[*health.Error](err)
	return !slices.ContainsFunc(failed.Conditions, func(c health.Condition) bool {
		return c.Owner == health.OwnerConfiguration
	})
}

// Check finds out how the node is and writes the status file. What is on the machine is checked
// without a network and without the lock. A check that fails is reported, too.
func (w *Watcher) Check(ctx context.Context, exhausted []string) (daemon.Finding, error) {
	// systemd tells whoever is connected of all that any unit does.
	defer w.Agent.Machine.Close()
	found, err := w.check(ctx, exhausted)
	if err != nil && w.last != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s := *w.last
		s.Conditions = health.Unchecked(s.Conditions, err, now())
		w.Follows.told(s)
		w.Agent.Live.unchecked(s)
		err = errors.Join(err, w.Agent.keepStatus(context.WithoutCancel(ctx), &s))
	}
	return found, err
}

func (w *Watcher) check(ctx context.Context, exhausted []string) (daemon.Finding, error) {
	h, err := w.Agent.openReadOnly(ctx)
	if err != nil {
		return daemon.Finding{}, err
	}
	left := w.left(h)
	if h.saved.Live == nil {
		return daemon.Finding{Left: left, Summary: "not joined yet"}, nil
	}
	if w.Follows != nil {
		w.Follows.settle(ctx, h)
	}
	known := watching{exhausted: exhausted, refused: w.refused, polls: w.Agent.Live.polling()}
	s, err := h.status(ctx, known)
	if err != nil {
		return daemon.Finding{}, err
	}
	w.last = &s
	w.report(s)
	w.Follows.told(s)
	w.tell(ctx, h, s, known)
	found := daemon.Finding{Summary: summary(s), Every: h.saved.Live.Config.CheckInterval()}
	for _, d := range s.Drift {
		found.Drift = append(found.Drift, string(d.Key))
		if h.driftPolicy(d.Key) == config.DriftRepair || d.Key.IsFirewall() {
			found.Repair = append(found.Repair, string(d.Key))
		}
	}
	if h.saved.Transition != nil {
		found.Repair = nil
	}
	found.Reconcile = h.saved.Transition != nil ||
		untrusted(s.Conditions) && !located(h.saved.Live.Config)
	if err := h.keepStatus(ctx, &s); err != nil {
		return found, err
	}
	return found, h.sweep(ctx) // with the time that is left; the next check tells of it
}

// untrusted tells whether the API server cannot be found or trusted under the known address and CA.
func untrusted(conditions []health.Condition) bool {
	return slices.ContainsFunc(conditions, func(c health.Condition) bool {
		return c.Type == health.APIServerReachable && c.Status == health.False &&
			(c.Reason == "NotTrusted" || c.Reason == "NameNotResolved")
	})
}

// report logs what differs from the last check.
func (w *Watcher) report(s Status) {
	text := summary(s)
	if text == w.logged {
		return
	}
	w.logged = text
	log := w.Agent.Log
	failing := false
	for _, c := range s.Conditions {
		if c.Status == health.False {
			failing = failing || c.Ill()
			log.Warn("condition", "type", c.Type, "reason", c.Reason, "owner", c.Owner,
				"message", c.Message)
		}
	}
	if !failing {
		log.Info("the node is healthy", "node", s.NodeName, "ready", s.Ready)
	}
}

// tell tells who watches this service what a check has found: the log of what drifts and did not
// before, and the metrics.
func (w *Watcher) tell(ctx context.Context, h *home, s Status, known watching) {
	before := w.drifting
	w.drifting = make(map[string]bool, len(s.Drift))
	var found []Entry
	for _, d := range s.Drift {
		key := string(d.Key)
		if w.drifting[key] = true; before[key] {
			continue
		}
		found = append(found, d)
		w.Agent.Log.Warn("drift", "what", d.Key, "step", d.Step, "expected", d.Expected,
			"found", d.Found)
	}
	var gone []string
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if !w.drifting[key] {
			gone = append(gone, key)
			w.Agent.Log.Info("no drift any more", "what", key)
		}
	}
	w.Agent.Live.drifted(found, gone)
	w.Agent.Live.checked(s, known)
	unpublished := ""
	if err := h.publishMetrics(ctx); err != nil {
		unpublished = err.Error()
	}
	if unpublished != "" && unpublished != w.unpublished {
		w.Agent.Log.Warn("cannot publish metrics", "error", unpublished)
	}
	w.unpublished = unpublished
}

// summary is one line on a status.
func summary(s Status) string {
	text := fmt.Sprintf("Node %s ready=%q, %s", s.NodeName, s.Ready, plural(len(s.Drift), "drift"))
	if worst, ok := health.First(s.Conditions); ok && worst.Status == health.False {
		text += ", " + worst.Type + ": " + worst.Reason
	}
	return text
}

// Repair puts the named things right.
func (w *Watcher) Repair(ctx context.Context, things []string) error {
	defer w.Agent.Machine.Close() // a pause follows if it fails
	_, err := w.Agent.Repair(ctx, things)
	return verdict(err)
}

// repairsFile keeps when things were repaired, for the next process.
const repairsFile = saved.RunDir + "/repairs.json"

// Repairs is the daemon's budget: three repairs of one thing in an hour.
func (a *Agent) Repairs() *daemon.Budget {
	b := &daemon.Budget{Most: 3, Within: time.Hour}
	if data, err := a.Machine.ReadFile(repairsFile); err == nil {
		if err := json.Unmarshal(data, &b.Done); err != nil {
			a.Log.Warn("cannot read when things were repaired", "error", err)
		}
	}
	b.Save = func(done map[string][]time.Time) {
		body, err := json.Marshal(done)
		if err == nil {
			file := state.NewFile(repairsFile, 0o600, string(body))
			err = a.Machine.Set(context.Background(), state.Change{To: file}, nil)
		}
		if err != nil {
			a.Log.Warn("cannot keep when things were repaired", "error", err)
		}
	}
	return b
}
