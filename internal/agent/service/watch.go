// Package service is the running daemon's part of the agent: the jobs of its worker (Watcher),
// following a flexNodeConfig (Following), and its status (Live): the socket, the metrics, the
// report to the provider. Package daemon has the loop.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Watcher implements daemon.Node, the jobs of the daemon's worker, on this machine.
type Watcher struct {
	Agent *change.Agent
	Load  func() (change.Input, error) // reads the current configuration
	// Follows follows this machine's resource; nil if it has none.
	Follows *Following
	Live    *Live // holds the current work and the counters of the service

	home    *change.Home      // the records as of the last check; nil before it
	node    bool              // this machine was a node, or about to become one
	refused *health.Rejection // the reason why the configuration is not in force, nil if it is
	logged  string
	// drifting holds the findings of the last check, exhausted the things no longer repaired then.
	drifting  sets.Set[string]
	exhausted []string
}

// Reconcile implements daemon.Node. Without a configuration it finishes an unfinished transition.
func (w *Watcher) Reconcile(ctx context.Context) transition.Outcome {
	o := change.Verdict(w.reconcile(ctx))
	switch {
	case o.Kind == transition.Done, o.Kind == transition.Waits, o.Kind == transition.Failed:
		w.refused = nil
	case o.Kind == transition.Refused && (w.refused == nil || w.refused.Reason != o.Err.Error()):
		_, policy := errors.AsType[*change.PolicyError](o.Err)
		w.refused = &health.Rejection{
			Version: cmp.Or(w.Agent.Records().BundleResource().ConfigVersion, "file"),
			Reason:  o.Err.Error(), At: time.Now(), ByPolicy: policy,
		}
	}
	return o
}

func (w *Watcher) reconcile(ctx context.Context) error {
	h, err := change.OpenReadOnly(ctx, w.Agent)
	if err != nil {
		return err
	}
	if w.left(h) {
		return &transition.Outcome{Kind: transition.Left}
	}
	if h.Saved.Transition != nil && h.Saved.Transition.Kind == transition.Leave {
		return finishLeaving(ctx, w, *h.Saved.Transition)
	}
	in, err := w.Load()
	r, unfollowed := h.Saved.Transition, error(nil)
	if h.Saved.Applied != nil && (r == nil || r.To == h.Saved.Applied.ID && !r.GoesBack()) {
		unfollowed = change.FollowCluster(ctx, h)
		if err := change.Reopen(ctx, h); err != nil {
			return errors.Join(unfollowed, err)
		}
	}
	if err != nil {
		return errors.Join(err, unfollowed, resume(ctx, w, h))
	}
	t, err := change.Aim(ctx, h, in)
	if err != nil {
		return err
	}
	t.Daemon, t.Waits = true, cmp.Or(change.Paused(w.Agent), change.Closed(h, t))
	if t.Waits == nil {
		t.Waits = change.Held(ctx, h, t)
	}
	if err := want(ctx, w, h, t.Received); err != nil {
		return err
	}
	done, err := resting(ctx, w, h, t)
	if done {
		err = errors.Join(err, unfollowed)
	} else {
		// The new configuration may fix it.
		inspect.LogError(w.Agent.Log, "cannot find the API server again", unfollowed)
		err = leadTo(ctx, w, h, t)
	}
	change.NoteWaiting(ctx, w.Agent, t, err)
	return err
}

func leadTo(ctx context.Context, w *Watcher, h *change.Home, t *change.Target) error {
	w.Agent.Waits = func(why error) { // the daemon checks nothing until the change has ended
		if why != nil {
			change.NoteWaiting(ctx, w.Agent, t, why)
		}
		_, err := w.Check(ctx, w.exhausted)
		inspect.LogError(w.Agent.Log, "cannot check the node while its change waits", err)
	}
	defer func() { w.Agent.Waits = nil }() // ctx ends with this job
	err := change.Reconcile(ctx, h, "agent", t)
	if errors.Is(err, transition.ErrSuperseded) {
		w.node = true // it was becoming one when another verb took over
	}
	if err == nil {
		err = change.NoteApplied(ctx, w.Agent, t.Input.Resource)
	}
	return err
}

// resting reports whether a node at this target needs no change, without the lock, and the result.
func resting(ctx context.Context, w *Watcher, h *change.Home, t *change.Target) (bool, error) {
	s, err := change.Situation(h, t)
	if err != nil || transition.Next(s).Move != transition.Rest {
		return err != nil, err
	}
	if s.Wanted == transition.Current {
		return true, change.NoteApplied(ctx, w.Agent, t.Input.Resource)
	}
	return true, change.Rest(ctx, h, t, s)
}

// left reports whether the machine is no longer a node: an operator ran unbootstrap.
func (w *Watcher) left(h *change.Home) bool {
	is := h.Saved.Live != nil || h.Engine.Journal.Exists()
	left := w.node && !is
	w.node = w.node || is
	return left
}

func want(ctx context.Context, w *Watcher, before *change.Home, received string) error {
	if !before.Saved.Rejected.Outdated(received) {
		return nil
	}
	h, err := change.OpenLocked(ctx, w.Agent, "agent")
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Store.Want(ctx, received)
}

// resume finishes the transition of another run, without a configuration.
func resume(ctx context.Context, w *Watcher, before *change.Home) error {
	if before.Saved.Transition == nil {
		return nil
	}
	h, err := change.OpenLocked(ctx, w.Agent, "agent")
	if err != nil {
		return err
	}
	defer h.Close()
	switch {
	case h.Saved.Transition == nil:
		return nil
	case h.Saved.Transition.Kind == transition.Leave:
		return transition.ErrSuperseded
	}
	return change.Settle(ctx, h, nil, false)
}

func finishLeaving(ctx context.Context, w *Watcher, t transition.Transition) error {
	how := *cmp.Or(t.Leave, &transition.Options{})
	if err := w.giveBack(ctx, how); err != nil {
		return err
	}
	if how.Waits {
		return &transition.Outcome{Kind: transition.Deleted}
	}
	return &transition.Outcome{Kind: transition.Left}
}

const deletedDrain = time.Minute // bounds the drain of a node whose resource was deleted

// Leave gives the machine back, since its resource was deleted. The service waits for another one.
func (w *Watcher) Leave(ctx context.Context) transition.Outcome {
	return change.Verdict(w.giveBack(ctx, transition.Options{
		DrainTimeout: deletedDrain, Waits: true, Deleted: w.Follows.Resource.UID,
	}))
}

// giveBack gives the machine back. It uses a readable configuration to access Azure.
func (w *Watcher) giveBack(ctx context.Context, how transition.Options) error {
	var given *config.Config
	if in, err := w.Load(); err == nil {
		given = &in.Config
	}
	_, err := change.Unbootstrap(ctx, w.Agent, given, change.Leave{Options: how})
	return err
}

// Check implements daemon.Node. It takes no lock. It also reports a failed check.
func (w *Watcher) Check(ctx context.Context, exhausted []string) (daemon.Finding, error) {
	// systemd sends each connected client the changes of all units.
	defer w.Agent.Machine.Close()
	w.exhausted = exhausted
	found, err := w.check(ctx, exhausted)
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return found, err
	}
	if s, known := lastStatus(w.Agent); known {
		s.Conditions, s.State = health.Unchecked(s.Conditions, err, time.Now()), inspect.Unsound
		err = errors.Join(err, keepStatus(context.WithoutCancel(ctx), w.Agent, &s))
		w.Follows.told(s)
		w.Live.update(func() { w.Live.status = &s })
	}
	inspect.LogError(w.Agent.Log, "cannot publish metrics",
		publishMetrics(context.WithoutCancel(ctx), w.Live, w.home))
	return found, err
}

func (w *Watcher) check(ctx context.Context, exhausted []string) (daemon.Finding, error) {
	w.home = cmp.Or(w.home, change.Unopened(w.Agent))
	h := w.home
	if err := change.Reopen(ctx, h); err != nil {
		return daemon.Finding{}, err
	}
	left := w.left(h) // it remembers that the machine has joined
	if h.Saved.Live == nil {
		return daemon.Finding{Left: left, Summary: "not joined yet"}, nil
	}
	if w.Follows != nil {
		w.Follows.settle(ctx, h)
	}
	known := &inspect.Work{
		Exhausted: exhausted, Refused: cmp.Or(w.refused, refused(w.Follows)), Polls: w.Live.Work().Polls,
	}
	s, err := inspect.StatusOf(ctx, h.Node, known)
	if err != nil {
		return daemon.Finding{}, err
	}
	report(w, s)
	w.Follows.told(s)
	w.tell(ctx, h, s, known)
	paused := inspect.Pause(&w.Agent.Env) != nil
	found := daemon.Finding{Summary: summary(s), Every: h.Saved.Live.Config.CheckInterval()}
	for _, d := range s.Drift {
		found.Drift = append(found.Drift, string(d.Key))
		repairs := inspect.DriftPolicy(h.Node, d.Key) == config.DriftRepair || d.Key.IsVital() ||
			change.Unstarted(ctx, h, d.Key)
		if repairs && h.Saved.Transition == nil && !paused {
			found.Repair = append(found.Repair, string(d.Key))
		}
	}
	found.Reconcile = h.Saved.Transition != nil || s.OtherResolver ||
		untrusted(s.Conditions) && !h.Saved.Live.Config.Located()
	err = errors.Join(keepStatus(ctx, w.Agent, &s), sweepStore(ctx, h)) // this in the remaining time
	inspect.LogError(w.Agent.Log, "cannot record the check", err)
	return found, nil
}

// keepStatus writes the status file. Conditions keep the time of their last change.
func keepStatus(ctx context.Context, a *change.Agent, s *inspect.Status) error {
	before, _ := lastStatus(a)
	s.Conditions = health.Merge(before.Conditions, s.Conditions)
	return change.VolatileWriter(a).Save(ctx, path.Base(inspect.StatusFile), s)
}

// lastStatus returns the status of the last check, also of a previous process.
func lastStatus(a *change.Agent) (s inspect.Status, known bool) {
	known, err := change.VolatileWriter(a).Records().Load(path.Base(inspect.StatusFile), &s)
	inspect.LogError(a.Log, "cannot read the previous status", err)
	return s, known
}

// untrusted reports whether the known API server cannot be found or trusted.
func untrusted(conditions []health.Condition) bool {
	return slices.ContainsFunc(conditions, func(c health.Condition) bool {
		return c.Type == health.APIServerReachable && c.Status == health.False &&
			(c.Reason == "NotTrusted" || c.Reason == "NameNotResolved")
	})
}

func report(w *Watcher, s inspect.Status) {
	text := summary(s)
	if text == w.logged {
		return
	}
	w.logged = text
	log := w.Agent.Log
	for _, c := range s.Conditions {
		if c.Status == health.False {
			log.Warn("condition", "type", c.Type, "reason", c.Reason, "owner", c.Owner,
				"message", c.Message)
		}
	}
	if !slices.ContainsFunc(s.Conditions, health.Condition.Ill) {
		log.Info("the node is healthy", "node", s.NodeName, "ready", s.Ready)
	}
}

func (w *Watcher) tell(ctx context.Context, h *change.Home, s inspect.Status, known *inspect.Work) {
	now, found := sets.New[string](), []state.Line(nil)
	for _, d := range s.Drift {
		if now.Insert(string(d.Key)); !w.drifting.Has(string(d.Key)) {
			found = append(found, d)
			w.Agent.Log.Warn("drift", "what", d.Key, "step", d.Step, "expected", d.Expected,
				"found", d.Found)
		}
	}
	gone := sets.List(w.drifting.Difference(now))
	w.drifting = now
	for _, key := range gone {
		w.Agent.Log.Info("no drift any more", "what", key)
	}
	w.Live.drifted(found, gone)
	w.Live.checked(s, known)
	inspect.LogError(w.Agent.Log, "cannot publish metrics", publishMetrics(ctx, w.Live, h))
}

func summary(s inspect.Status) string {
	text := fmt.Sprintf("Node %s ready=%q, %s", s.NodeName, s.Ready, progress.Plural(len(s.Drift),
		"drift"))
	if worst, ok := health.First(s.Conditions); ok && worst.Status == health.False {
		text += ", " + worst.Type + ": " + worst.Reason
	}
	return text
}

// Repair repairs the named things.
func (w *Watcher) Repair(ctx context.Context, things []string) transition.Outcome {
	defer w.Agent.Machine.Close() // a pause follows on failure
	_, err := change.Repair(ctx, w.Agent, things)
	return change.Verdict(err)
}

// repairsFile, in RunDir, stores the times of repairs for the next process.
const repairsFile = "repairs.json"

// Repairs returns the daemon's repair budget.
func Repairs(a *change.Agent) *daemon.Budget {
	b, file := &daemon.Budget{Most: 3, Within: time.Hour}, change.VolatileWriter(a)
	_, err := file.Records().Load(repairsFile, &b.Done)
	inspect.LogError(a.Log, "cannot read when things were repaired", err)
	b.Save = func(done map[string][]time.Time) {
		inspect.LogError(a.Log, "cannot keep when things were repaired",
			file.Save(context.Background(), repairsFile, done))
	}
	return b
}

const sweepEvery = 24 * time.Hour // the interval at which the store is verified

// sweepStore verifies the store when due, until ctx ends, unless the node is being changed.
func sweepStore(ctx context.Context, h *change.Home) error {
	if h.Saved.Applied == nil || h.Saved.Transition != nil {
		return nil
	}
	s, known := inspect.Swept(h.Node)
	age := time.Since(s.At) // negative if the clock was set back
	if !known || age < 0 || age >= sweepEvery {
		s = inspect.Sweep{At: inspect.Stamp(), Generation: h.Saved.Applied.ID, Damaged: s.Damaged,
			Left: slices.Sorted(maps.Keys(h.Saved.Applied.Facts.Store))}
	}
	file := change.VolatileWriter(h.Agent)
	for first := true; len(s.Left) > 0 && ctx.Err() == nil; first = false {
		name := s.Left[0]
		s.Left = s.Left[1:]
		// Recorded before reading: if that kills this process, it is not repeated at once.
		if err := file.Save(ctx, inspect.SweepFile, s); err != nil {
			return err
		}
		damaged, err := change.Unsound(ctx, h.Node, h.Saved.Applied, name)
		switch {
		case err != nil && !first: // next time, with more time
			s.Left = append(s.Left, name)
		case err == nil:
			s.Damaged = slices.DeleteFunc(s.Damaged, func(n string) bool { return n == name })
			if damaged {
				s.Damaged = append(s.Damaged, name)
			}
		}
		if err := file.Save(context.WithoutCancel(ctx), inspect.SweepFile, s); err != nil {
			return err
		}
	}
	return nil
}

const (
	partsPause = 15 * time.Second // before a machine that is not a node yet is checked again
	// The pauses between watches of the Node object. Its pods end 40 s after its deletion, so the
	// pause stays shorter than that, even after a long outage of the API server.
	watchFirst = time.Second
	maxWatch   = 15 * time.Second
	watchLong  = time.Minute // the duration of a watch when all is well
)

// Changed calls hint when a part of the applied node may have changed, until ctx ends.
func Changed(ctx context.Context, a *change.Agent, hint func(string)) {
	applied := path.Join(saved.StateDir, "applied")
	for pause := time.Duration(0); wait.Sleep(ctx, pause); {
		files, units := inspect.Parts(ctx, &a.Env)
		if pause = partsPause; len(files) == 0 {
			continue
		}
		within, again := context.WithCancel(ctx)
		a.Machine.Watch(within, append(files, applied), units, func(what string) {
			if what == applied || what == "" {
				again() // watch the new node
			}
			hint(what)
		})
		again()
		pause = 0
	}
}

// Deleted calls hint when the Node is deleted, until ctx ends, and once if it is missing.
func Deleted(ctx context.Context, a *change.Agent, hint func(string)) {
	const what = "the Node object was deleted"
	pauses, told := wait.Backoff{Base: watchFirst, Max: maxWatch}, false
	for pause := time.Duration(0); wait.Sleep(ctx, pause); {
		began := time.Now()
		err := inspect.WaitDeleted(ctx, &a.Env)
		switch {
		case err == nil:
			hint(what)
			pauses.Reset()
			told = true
		case errors.Is(err, inspect.ErrNodeMissing):
			if !told {
				hint(what)
			}
			told = true
		case time.Since(began) >= watchLong:
			pauses.Reset()
			told = false
		}
		if pause = wait.Jitter(maxWatch / 3); !errors.Is(err, inspect.ErrNoNode) {
			pause = pauses.Next() // the API server also serves others
		}
	}
}
