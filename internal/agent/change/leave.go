package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Leave controls how a machine stops being a node.
type Leave struct {
	transition.Options
	Force bool // continue without a ledger: remove only things still in our state
}

type leaving struct {
	*Home
	// config is the node's, nil if unknown; given is the user's, for access to Azure.
	config, given *config.Config
	server        *inspect.Cluster // the current API server, once found
	// remaining is the error of deleting something elsewhere: the Node object, resources in Azure.
	remaining error
	arcFailed bool
	heard     bool // the provider knows that this machine leaves
	parted    bool // a previous run has finished its farewell without an error
}

// Unbootstrap gives the machine back in its old state. The error lists what could not be undone;
// the ledger still has it, so running again finishes it.
func Unbootstrap(ctx context.Context, a *Agent, given *config.Config, how Leave) (Result, error) {
	began := time.Now()
	h, err := openToLeave(ctx, a, given, how)
	if err != nil {
		return Result{}, err
	}
	defer h.Close()
	if is := a.Records().BundleResource().UID; how.Deleted != "" && is != "" && is != how.Deleted {
		return Result{}, &transition.Outcome{Kind: transition.Replaced, Err: errors.New(
			"this machine has a different configuration from the one that was deleted")}
	}
	l := &leaving{Home: h, config: leaver(h, given), given: given}
	result := Result{}
	if l.config != nil {
		result.NodeName = l.config.Agent.NodeName
	}
	if !h.Engine.Journal.Exists() {
		h.Note("this machine is not a node; nothing to undo")
		err := l.leaveArc(ctx, how.Options)
		if !how.Waits {
			err = errors.Join(stopDaemon(ctx, h), disableDaemon(ctx, h), err)
		}
		if err != nil {
			return result, err
		}
		return result, eraseRecords(ctx, h, how.Waits)
	}
	h.Engine.Emit = l.view.Changed
	err = l.run(ctx, how.Options)
	result.finish(began, l.view.Total, err)
	result.Ready = false
	for _, k := range h.Engine.Kept {
		h.Warn("another process had changed %s; a copy is kept as %s", k.Path, k.Copy)
		result.Kept = append(result.Kept, k.Copy)
	}
	for _, c := range h.Engine.Left {
		h.Warn("another process has changed %s; it is left unchanged", c.From.Key())
		result.Left = append(result.Left, string(c.From.Key()))
	}
	return result, err
}

// run carries out the phases of leaving. Repeating those of an interrupted run is a no-op.
func (l *leaving) run(ctx context.Context, how transition.Options) error {
	t := transition.Transition{Kind: transition.Leave, Began: inspect.Stamp(), Leave: &how}
	var was transition.Transition // openLedger has not read it
	if ok, _ := l.Records().Load(saved.TransitionFile, &was); ok && was.Kind == transition.Leave {
		t.Began, t.Cause = was.Began, was.Cause
		l.parted = t.Cause == "" && (was.Phase == transition.Undo || was.Phase == transition.Erase)
	}
	t.Cordoned = was.Cordoned
	if g := begun(l.Home); g != nil {
		t.From = g.ID
	}
	runner := transition.Runner{
		Steps: map[transition.Phase]transition.Step{
			transition.Drain: l.drain, transition.Farewell: l.farewell,
			transition.Undo: l.undo, transition.Erase: l.erase,
		},
		Save: l.Store.SaveTransition, Now: inspect.Stamp,
		// Erasing removes the record with everything else.
		Clear: func(context.Context) error { return nil },
	}
	return runner.Run(ctx, t, "")
}

// openToLeave opens the records. It needs only the ledger, and not even that if forced.
func openToLeave(ctx context.Context, a *Agent, given *config.Config, how Leave) (*Home, error) {
	h, err := OpenLocked(ctx, a, "unbootstrap")
	_, locked := errors.AsType[*host.LockedError](err)
	unknown := errors.Is(err, saved.ErrLedgerLost) || errors.Is(err, apply.ErrDamaged)
	switch {
	case err == nil, locked, ctx.Err() != nil:
		return h, err
	case !unknown:
		a.Warn("%v", err)
	case !how.Force:
		return nil, fmt.Errorf("%w; --force removes only what has not changed since, and leaves the "+
			"rest", err)
	case given == nil:
		return nil, errors.New("cannot determine what to remove without the configuration: use --config")
	}
	h = Unopened(a)
	if h.lock, err = Acquire(a, saved.LockFile, "unbootstrap"); err != nil {
		return nil, err
	}
	if unknown {
		err = adopt(ctx, h, *given)
	} else {
		err = openLedger(h)
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// leaver returns the live configuration, else the user's, else that of an unfinished join.
func leaver(h *Home, given *config.Config) *config.Config {
	g := begun(h)
	if h.Saved.Live == nil && given != nil || g == nil {
		return given
	}
	return new(h.Saved.ConfigOf(g))
}

// begun returns the live generation, else that of an unfinished join, else nil.
func begun(h *Home) *generation.Generation {
	if h.Saved.Live != nil || h.Saved.Transition == nil {
		return h.Saved.Live
	}
	g, err := h.Saved.Generations.Load(cmp.Or(h.Saved.Transition.To, h.Saved.Transition.From))
	if err != nil {
		return nil
	}
	return &g
}

// member returns a client with kubelet's credential; nil if it has none, as before a join.
func member(ctx context.Context, l *leaving) *kube.Client {
	if l.config == nil || !access.Held(l.Node, *l.config) {
		return nil
	}
	client, err := access.Client(ctx, l.Node, *l.config, found(ctx, l))
	if err != nil {
		l.Warn("%v", err)
		return nil
	}
	return client
}

// found returns the API server, which may have a new address or CA since the last change.
func found(ctx context.Context, l *leaving) inspect.Cluster {
	if l.server != nil {
		return *l.server
	}
	c := cmp.Or(l.given, l.config)
	t := &Target{Input: Input{Config: *c}, Locator: NewLocator(l.Home), At: l.Saved.At()}
	if err := findAgain(ctx, l.Home, t); err != nil {
		l.Warn("%v", err)
		t.At = l.Saved.At()
	}
	t.At.CA = kube.Unite(t.At.CA, l.Saved.Bindings.CA)
	l.server = &t.At
	return t.At
}

// drain drains the node. A failed drain does not stop the unbootstrap.
func (l *leaving) drain(ctx context.Context, t *transition.Transition) error {
	client := member(ctx, l)
	if client == nil || t.Leave.DrainTimeout == 0 {
		return nil
	}
	defer client.Close()
	name := l.config.Agent.NodeName
	l.Note("draining Node %s", name)
	bounded, cancel := context.WithTimeout(ctx, t.Leave.DrainTimeout)
	defer cancel()
	err := l.own(bounded)
	if err == nil {
		err = client.CordonLeft(bounded, name, true, t.Cordoned)
	}
	if err == nil {
		err = client.Drain(bounded, name, kube.DrainOptions{
			DeleteEmptyDir: !t.Leave.KeepEmptyDir, Force: !t.Leave.KeepUnmanaged, Partial: true,
			Progress: l.Alive,
		})
	}
	if err != nil {
		l.Warn("cannot drain the node: %v", err)
	}
	return ctx.Err()
}

// farewellTime is the time for which the service retries the deletion of the Node.
const farewellTime = 10 * time.Minute

// farewell deletes the Node object and our resources in Azure, while there is a credential.
// Failures do not stop the unbootstrap, but the service retries for a while first.
func (l *leaving) farewell(ctx context.Context, t *transition.Transition) error {
	var stopped error
	if !t.Leave.Waits {
		stopped = stopDaemon(ctx, l.Home)
	}
	l.remaining = l.deleteNode(ctx, t.Cause, t.Leave.Deleted != "")
	took := inspect.Stamp().Sub(t.Began) // negative if the clock was set back since
	if l.remaining != nil && t.Leave.Waits && took >= 0 && took < farewellTime {
		return l.remaining
	}
	if t.Cause = ""; l.remaining != nil {
		t.Cause = l.remaining.Error()
	}
	arcErr := l.leaveArc(ctx, *t.Leave)
	l.remaining, l.arcFailed = errors.Join(l.remaining, arcErr), arcErr != nil
	return errors.Join(stopped, ctx.Err())
}

const deletionTime = 30 * time.Second // bounds each attempt to delete the Node

// deleteNode makes the provider delete the Node, or tries itself, which few clusters allow. It
// returns the error of a previous run, failed, if that has removed the credential since. A provider
// that has deleted the resource is asked in any case: it knows whose the Node is.
func (l *leaving) deleteNode(ctx context.Context, failed string, deleted bool) error {
	if l.config == nil || failed == "" && !access.Held(l.Node, *l.config) &&
		(l.parted || !l.Saved.Joined()) {
		return nil
	}
	others := l.own(ctx)
	err := others
	if err == nil || deleted {
		err = l.withProvider(ctx, follow.Leave)
	}
	if l.heard = err == nil; l.heard {
		return nil
	}
	if others != nil {
		l.Warn("cannot delete the Node: %v", others)
		return nil
	}
	if !errors.Is(err, follow.ErrNotFollowed) {
		l.Warn("%v", err)
	}
	client := member(ctx, l)
	switch {
	case client == nil && failed != "":
		return errors.New(failed)
	case client == nil && errors.Is(err, follow.ErrNotFollowed):
		l.Warn("cannot delete the Node %s without kubelet's credential", l.config.Agent.NodeName)
		return nil
	case client == nil:
		return err
	}
	defer client.Close()
	bounded, cancel := context.WithTimeout(ctx, deletionTime)
	defer cancel()
	return client.DeleteNode(bounded, l.config.Agent.NodeName)
}

// own returns an error if the Node is of another machine, which has replaced this one or is the
// original of this copy. Unknown is ours: a Node that nothing else deletes would remain.
func (l *leaving) own(ctx context.Context) error {
	c := *l.config
	seen, err := l.Agent.Machine.Facts(ctx, inspect.Query(l.Node, c))
	if err != nil || !access.Held(l.Node, c) {
		return nil
	}
	n := inspect.AskNode(ctx, l.Node, access.Client, c, found(ctx, l))
	if !n.OK() || !health.Anothers(n.Value, seen) {
		return nil
	}
	return fmt.Errorf("the Node %s now belongs to another machine", c.Agent.NodeName)
}

func (l *leaving) withProvider(ctx context.Context,
	ask func(context.Context, follow.Question) error) error {
	is := followed(l.Node.Env)
	if is.ID == "" {
		return follow.ErrNotFollowed
	}
	bounded, cancel := context.WithTimeout(ctx, deletionTime)
	defer cancel()
	return ask(bounded, question(l.Home, is, follow.MannerOf(*l.config), FormerManner(l.Home)))
}

func (l *leaving) undo(ctx context.Context, t *transition.Transition) (err error) {
	if t.Leave.KeepArc { // the ledger forgets the Arc agent that we installed
		ledger := l.Engine.Journal.Ledger().Forget(inspect.StandingArc(l.Node).Keys()...)
		err = l.Engine.Journal.Save(ctx, ledger)
	}
	had := l.Engine.Journal.Ledger().Keys()
	if err == nil {
		err = l.Engine.Revert(ctx)
	}
	if err != nil {
		return errors.Join(l.remaining, err)
	}
	l.view.End()
	setParameters(ctx, l.Home, had)
	return nil
}

// setParameters sets the kernel parameters that were reset, also by an earlier run, as the owner's
// files have them by now.
func setParameters(ctx context.Context, h *Home, keys []state.Key) {
	if g := begun(h); g != nil {
		keys = append(keys, node.Bind(g.Node, h.Saved.Bindings.Bindings).Keys()...)
	}
	argv := []string{h.Path("/usr/lib/systemd/systemd-sysctl")}
	for _, key := range keys {
		left := func(c state.Change) bool { return c.From.Key() == key }
		name, isParameter := strings.CutPrefix(string(key), "sysctl:")
		name, isSetting := strings.CutPrefix(name, "residue:setting:")
		if (isParameter || isSetting) && !slices.ContainsFunc(h.Engine.Left, left) {
			argv = append(argv, "--prefix="+name)
		}
	}
	if len(argv) == 1 {
		return
	}
	_, err := h.Agent.Machine.Run(ctx, time.Minute, nil, argv...)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.Warn("cannot set the kernel parameters of /etc/sysctl.d: %v", err)
	}
}

// erase removes the agent's own records. Those of leftovers in Azure stay for the next run.
func (l *leaving) erase(ctx context.Context, t *transition.Transition) error {
	err := l.remaining
	if l.config != nil {
		err = errors.Join(err, RemoveMetrics(ctx, l.Home, l.config.Agent.Metrics.Textfile))
		if left := inspect.Foreign(l.Node, *l.config, nil); len(left) > 0 {
			l.Warn("the cluster's pod network in %s (%s) stays: remove it, and reboot, before this "+
				"machine joins another cluster", l.config.Paths.CNI.ConfDir, strings.Join(left, ", "))
		}
	}
	if l.arcFailed && !t.Leave.Waits {
		return errors.Join(err, forgetNode(ctx, l.Home), disableDaemon(ctx, l.Home))
	}
	return errors.Join(err, eraseRecords(ctx, l.Home, t.Leave.Waits))
}

// stopDaemon stops the agent's service, which would otherwise make this machine a node again. It
// stays enabled: after a reboot it continues leaving.
func stopDaemon(ctx context.Context, h *Home) error {
	return setService(ctx, h.Agent,
		func(to *state.Unit) { to.Active = to.Active && h.Agent.InService })
}

func disableDaemon(ctx context.Context, h *Home) error {
	return setService(ctx, h.Agent, func(to *state.Unit) {
		if to.Enabled == state.Enabled {
			to.Enabled = state.Disabled
		}
	})
}

func setService(ctx context.Context, a *Agent, change func(*state.Unit)) error {
	is, err := a.Machine.Observe(ctx, state.UnitKey(Service))
	from, known := is.(state.Unit)
	if err != nil || !known {
		return err
	}
	to := from
	if change(&to); state.Equal(from, to) {
		return nil
	}
	return a.Machine.Set(ctx, state.Change{From: from, To: to}, nil)
}

// eraseRecords removes the agent's own records: first those that make this machine a node, last
// that of leaving. A daemon killed in between has nothing to join with, and finishes. If it waits
// afterwards, it remembers the configuration file before it erases anything.
func eraseRecords(ctx context.Context, h *Home, waits bool) error {
	data, err := h.Agent.Machine.ReadFile(saved.ConfigFile)
	keeps := waits && err == nil
	if keeps {
		dir := state.Dir{Path: saved.StateDir, Mode: 0o700}
		if err := errors.Join(apply.Make(ctx, h.Store.Disk, dir),
			h.Store.Write(ctx, saved.FormerFile, state.Digest(string(data)))); err != nil {
			return err
		}
	}
	errs := []error{forgetNode(ctx, h), h.Store.Remove(ctx, string(generation.Live)),
		h.Store.Remove(ctx, path.Base(saved.BundleFile)), h.Store.Remove(ctx, saved.SourceFile)}
	names, err := h.Agent.Machine.List(saved.StateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, name := range names {
		if name != saved.TransitionFile && !(keeps && name == saved.FormerFile) {
			errs = append(errs, h.Store.RemoveTree(ctx, path.Join(saved.StateDir, name)))
		}
	}
	if !waits { // not earlier: after a power cut the service finishes
		errs = append(errs, disableDaemon(ctx, h))
	}
	errs = append(errs, h.Store.Remove(ctx, saved.TransitionFile))
	is, err := h.Agent.Machine.Observe(ctx, state.PathKey(saved.StateDir))
	if dir, ok := is.(state.Dir); ok && !dir.Mounted && !keeps { // the owner's mount or link stays
		err = h.Store.RemoveTree(ctx, saved.StateDir)
	}
	// Last the lock: another process may be waiting for it, and store a configuration.
	errs = append(errs, err, h.Store.RemoveTree(ctx, saved.RunDir), h.Agent.Machine.Flush())
	return errors.Join(errs...)
}

// forgetNode removes the records that make this machine a node. The identity that it had stays.
func forgetNode(ctx context.Context, h *Home) error {
	return errors.Join(h.Store.Remove(ctx, saved.JoinFile),
		h.Store.Remove(ctx, string(generation.Applied)),
		h.Store.Remove(ctx, string(generation.Previous)), h.Store.Remove(ctx, saved.BindingsFile))
}

func openLedger(h *Home) error {
	opened := Unopened(h.Agent)
	if err := opened.Engine.Journal.Read(h.Agent.Machine); err != nil {
		return err
	}
	opened.lock = h.lock
	*h = *opened
	if _, err := h.Saved.Load(saved.BindingsFile, &h.Saved.Bindings); err != nil {
		h.Warn("%v", err)
	}
	return nil
}

// adopt adds everything that is exactly in our state to an empty ledger, as absent before.
func adopt(ctx context.Context, h *Home, c config.Config) error {
	want, err := wouldBe(ctx, h, c)
	if err != nil {
		return err
	}
	seen, err := h.Engine.Observe(ctx, want, nil)
	if err == nil {
		err = apply.Blind(seen.Unknown())
	}
	if err != nil {
		return err
	}
	return h.Engine.Journal.Save(ctx, state.Adopt(want, seen))
}

// wouldBe returns the stored node, else the one in the configuration.
func wouldBe(ctx context.Context, h *Home, c config.Config) (state.Desired, error) {
	if err := h.Read(ctx); err == nil && h.Saved.Live != nil {
		b := h.Saved.Bindings.Bindings
		b.ForeignArc = true
		return node.Bind(h.Saved.Live.Node, b), nil
	}
	t, err := Aim(ctx, h, Input{Config: c})
	if err != nil {
		return nil, err
	}
	if t.At, err = t.Locator.Locate(ctx, c); err != nil {
		return nil, err
	}
	to, _, err := resolve(ctx, h, t)
	if err != nil {
		return nil, err
	}
	b := bindingsFor(h, t).Bindings
	b.Joined, b.ForeignArc = true, true // only the ledger knew whose the Arc agent is
	return node.Bind(to.Node, b), nil
}
