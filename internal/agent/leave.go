package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Leave says how a machine stops being a node.
type Leave struct {
	transition.Options
	// Force goes on without a ledger: only what still is as we made it is removed.
	Force bool
}

// leaving carries out the transition of a machine that stops being a node.
type leaving struct {
	*home
	// config is the node's, nil when nobody knows it; given is what the user gave, which decides
	// who speaks to Azure.
	config, given *config.Config
	view          *steps
	// server is where the API server is now, once that was found out.
	server *where
	// remaining is what could not be deleted elsewhere: the Node object, what is in Azure.
	remaining []error
	arcFailed bool
}

// Unbootstrap gives the machine back as it was: its pods move to other nodes if they can, the Node
// object is deleted, what the ledger remembers is restored, and then the agent's own records are
// removed. The error lists all that could not be undone; that is still in the ledger, so running
// again finishes it.
func (a *Agent) Unbootstrap(ctx context.Context, given *config.Config, how Leave) (Result, error) {
	began := now()
	h, err := a.openToLeave(ctx, given, how)
	if err != nil {
		return Result{}, err
	}
	defer h.close()
	if is := a.records().BundleResource().UID; how.Deleted != "" && is != "" && is != how.Deleted {
		return Result{}, daemon.ErrReplaced
	}
	l := &leaving{home: h, config: h.leaver(given), given: given, view: &steps{agent: a}}
	result := Result{}
	if l.config != nil {
		result.NodeName = l.config.Agent.NodeName
	}
	if !h.engine.Journal.Exists() {
		h.note("this machine is not a node; nothing to undo")
		stopped := h.stopDaemon(ctx, how.Waits)
		if err := errors.Join(stopped, h.leaveArc(ctx, l.arcConfig(), how.KeepArc)); err != nil {
			return result, err
		}
		return result, h.erase(ctx)
	}
	h.engine.Emit = l.view.emit
	err = l.run(ctx, how.Options)
	result.finish(began, l.view.total, err)
	result.Kept, result.Left = l.reports()
	return result, err
}

// run carries out the phases of leaving. What an interrupted run has done is done again, which
// changes nothing.
func (l *leaving) run(ctx context.Context, how transition.Options) error {
	t := transition.Transition{Kind: transition.Leave, Began: stamp(), Leave: &how}
	if g := l.begun(); g != nil {
		t.From = g.ID
	}
	runner := transition.Runner{
		Steps: map[transition.Phase]transition.Step{
			transition.Drain: l.drain, transition.Farewell: l.farewell,
			transition.Undo: l.undo, transition.Erase: l.erase,
		},
		Save: l.saved.SaveTransition, Now: stamp,
		// Erasing removes the record together with everything else.
		Clear: func(context.Context) error { return nil },
	}
	return runner.Run(ctx, t, "")
}

// openToLeave opens the records. The ledger is all that undoing needs: one that is lost or damaged
// stops here, unless forced, and other records that cannot be read do not.
func (a *Agent) openToLeave(ctx context.Context, given *config.Config, how Leave) (*home, error) {
	h, err := a.openLocked(ctx, "unbootstrap")
	_, locked := errors.AsType[*saved.LockedError](err)
	unknown := errors.Is(err, saved.ErrLedgerLost) || errors.Is(err, apply.ErrDamaged)
	switch {
	case err == nil, locked, ctx.Err() != nil:
		return h, err
	case !unknown:
		a.warn("%v", err)
		return a.openLedgerOnly()
	case !how.Force:
		return nil, fmt.Errorf("%w; with --force what still is as aks-flex-node made it is removed, and "+
			"the rest is left", err)
	}
	return a.openForced(ctx, given)
}

// leaver returns the configuration of the node that this machine is, or was becoming: the live one,
// else what the user gave, else that of the join which has begun.
func (h *home) leaver(given *config.Config) *config.Config {
	g := h.begun()
	if h.saved.Live == nil && given != nil || g == nil {
		return given
	}
	c := h.saved.ConfigOf(g)
	return &c
}

// begun is the live generation, else that of a join which has not come so far; nil where there is
// none.
func (h *home) begun() *generation.Generation {
	if h.saved.Live != nil || h.saved.Transition == nil {
		return h.saved.Live
	}
	g, err := h.saved.Generations.Load(cmp.Or(h.saved.Transition.To, h.saved.Transition.From))
	if err != nil {
		return nil
	}
	return &g
}

// arcConfig decides who speaks to Azure: what the user gave, since the secret that enrolled the
// machine may be long expired.
func (l *leaving) arcConfig() *config.Config {
	if l.given != nil && (l.given.Azure.ArcEnabled() || l.given.Azure.ServicePrincipal != nil) {
		return l.given
	}
	return l.config
}

// member returns a client with kubelet's credential; nil when there is none, as before the first
// join.
func (l *leaving) member(ctx context.Context) *kube.Client {
	if l.config == nil || !l.credentialed(*l.config) {
		return nil
	}
	client, err := l.kubeletClient(ctx, *l.config, l.found(ctx))
	if err != nil {
		l.warn("%v", err)
		return nil
	}
	return client
}

// found is where the API server is, which may have another address or CA since the node was last
// changed.
func (l *leaving) found(ctx context.Context) where {
	if l.server != nil {
		return *l.server
	}
	c := l.config
	if l.given != nil {
		c = l.given
	}
	t := &target{input: Input{Config: *c}, locator: &locator{home: l.home}, at: l.saved.At()}
	if err := l.follow(ctx, t); err != nil {
		l.warn("%v", err)
		t.at = l.saved.At()
	}
	t.at.CA = saved.Unite(t.at.CA, l.saved.Bindings.CA)
	l.server = &t.at
	return t.at
}

// drain moves the pods to other nodes. That it does not succeed is no reason to keep the machine.
func (l *leaving) drain(ctx context.Context, t *transition.Transition) error {
	client := l.member(ctx)
	if client == nil || t.Leave.DrainTimeout == 0 {
		return nil
	}
	defer client.Close()
	name := l.config.Agent.NodeName
	l.note("draining Node %s", name)
	bounded, cancel := context.WithTimeout(ctx, t.Leave.DrainTimeout)
	defer cancel()
	err := client.Cordon(bounded, name)
	if err == nil {
		err = client.Drain(bounded, name, kube.DrainOptions{
			DeleteEmptyDir: !t.Leave.KeepEmptyDir, Force: !t.Leave.KeepUnmanaged, Partial: true,
			Progress: l.beat,
		})
	}
	if err != nil {
		l.warn("pods were not moved away: %v", err)
	}
	return ctx.Err()
}

// farewell deletes what is elsewhere, while there is a credential to do it with: the Node object,
// and what was made in Azure. What remains does not keep the machine from being given back.
func (l *leaving) farewell(ctx context.Context, t *transition.Transition) error {
	stopped := l.stopDaemon(ctx, t.Leave != nil && t.Leave.Waits)
	if client := l.member(ctx); client != nil {
		defer client.Close()
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		l.remain(client.DeleteNode(bounded, l.config.Agent.NodeName))
	}
	if err := l.leaveArc(ctx, l.arcConfig(), t.Leave.KeepArc); err != nil {
		l.remain(err)
		l.arcFailed = true
	}
	return errors.Join(stopped, ctx.Err())
}

func (l *leaving) remain(err error) {
	if err != nil {
		l.remaining = append(l.remaining, err)
	}
}

// undo brings everything that the ledger remembers back to what it was.
func (l *leaving) undo(ctx context.Context, t *transition.Transition) error {
	if t.Leave.KeepArc {
		if err := l.keepArc(ctx); err != nil {
			return errors.Join(append(l.remaining, err)...)
		}
	}
	if err := l.engine.Revert(ctx); err != nil {
		return errors.Join(append(l.remaining, err)...)
	}
	l.view.end()
	return nil
}

// erase removes the agent's own records. Those of what is left in Azure remain for the next run,
// and who leaves it; what is left then is no node.
func (l *leaving) erase(ctx context.Context, t *transition.Transition) error {
	forget := l.home.erase
	if l.arcFailed && !t.Leave.Waits {
		forget = l.forgetNode
	}
	return errors.Join(append(l.remaining, l.eraseMetrics(ctx), forget(ctx))...)
}

// reports are the copies that were kept, and what was left as somebody else had changed it.
func (l *leaving) reports() (kept, left []string) {
	for _, k := range l.engine.Kept {
		l.warn("somebody else had changed %s; a copy is kept as %s", k.Path, k.Copy)
		kept = append(kept, k.Copy)
	}
	for _, c := range l.engine.Left {
		l.warn("%s was changed by somebody else and is left as it is", c.From.Key())
		left = append(left, string(c.From.Key()))
	}
	return kept, left
}

// stopDaemon stops and disables the agent's own service, which else would make this machine a node
// again.
func (h *home) stopDaemon(ctx context.Context, waits bool) error {
	if waits {
		return nil
	}
	is, err := h.Machine.Observe(ctx, state.UnitKey(Service))
	if err != nil {
		return err
	}
	from := is.(state.Unit)
	to := from
	to.Active = to.Active && h.InService
	if to.Enabled == state.Enabled {
		to.Enabled = state.Disabled
	}
	if state.Equal(from, to) {
		return nil
	}
	return h.Machine.Set(ctx, state.Change{From: from, To: to}, nil)
}

// eraseMetrics removes the file that the service has written its metrics to.
func (l *leaving) eraseMetrics(ctx context.Context) error {
	if l.config == nil || l.config.Agent.Metrics.Textfile == "" {
		return nil
	}
	return l.removeMetrics(ctx, l.config.Agent.Metrics.Textfile)
}

// erase removes the agent's own records. What says that this machine is a node comes first, and the
// record of leaving last but for the configuration that a provider has delivered: a run that is
// killed in between leaves a machine that is none, and whose daemon goes on.
func (h *home) erase(ctx context.Context) error {
	errs := []error{h.forgetNode(ctx), h.saved.Remove(ctx, string(generation.Live))}
	names, err := h.Machine.List(saved.StateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	last := []string{saved.TransitionFile, saved.SourceFile, path.Base(saved.BundleFile)}
	for _, name := range names {
		if !slices.Contains(last, name) {
			errs = append(errs, h.removeAll(ctx, path.Join(saved.StateDir, name)))
		}
	}
	for _, name := range last {
		errs = append(errs, h.removeAll(ctx, path.Join(saved.StateDir, name)))
	}
	errs = append(errs, h.removeAll(ctx, saved.StateDir), h.removeAll(ctx, saved.RunDir))
	return errors.Join(append(errs, h.Machine.Flush())...)
}

// forgetNode removes what says that this machine is a node. As whom it was one remains.
func (h *home) forgetNode(ctx context.Context) error {
	var errs []error
	for _, name := range []string{
		saved.JoinFile, string(generation.Applied), string(generation.Previous), saved.BindingsFile,
	} {
		errs = append(errs, h.saved.Remove(ctx, name))
	}
	return errors.Join(errs...)
}

// removeAll removes what is at a path of ours, with all that is in it.
func (h *home) removeAll(ctx context.Context, path string) error {
	is, err := h.Machine.Observe(ctx, state.PathKey(path))
	if err != nil {
		return err
	}
	if _, gone := is.(state.Absent); gone {
		return nil
	}
	return h.Machine.Set(ctx, state.Change{
		From: is, To: state.Absent{Path: path}, Undo: true, Ours: state.Dir{Path: path, Purge: true},
	}, nil)
}

// openLedgerOnly opens the ledger of a machine whose other records cannot be read.
func (a *Agent) openLedgerOnly() (*home, error) {
	l, err := a.acquire(saved.LockFile, "unbootstrap")
	if err != nil {
		return nil, err
	}
	journal, err := apply.OpenJournal(a.Machine, saved.StateDir, saved.LedgerFile)
	if err != nil {
		l.Release()
		return nil, err
	}
	h := a.newHome(journal, l)
	if _, err := h.saved.Load(saved.BindingsFile, &h.saved.Bindings); err != nil {
		a.warn("%v", err)
	}
	return h, nil
}

// openForced makes a ledger of what we would have made: everything that is exactly so is ours and
// is removed; everything else is left.
func (a *Agent) openForced(ctx context.Context, c *config.Config) (*home, error) {
	if c == nil {
		return nil, errors.New("cannot tell what is ours without the configuration: give it with " +
			"--config")
	}
	l, err := a.acquire(saved.LockFile, "unbootstrap --force")
	if err != nil {
		return nil, err
	}
	h := a.newHome(apply.NewJournal(a.Machine, saved.StateDir, saved.LedgerFile), l)
	if err := h.adopt(ctx, *c); err != nil {
		l.Release()
		return nil, err
	}
	return h, nil
}

// adopt enters into an empty ledger all that is on the machine exactly as we would make it, with
// its absence as what was before.
func (h *home) adopt(ctx context.Context, c config.Config) error {
	want, err := h.wouldBe(ctx, c)
	if err != nil {
		return err
	}
	seen, err := h.engine.Observe(ctx, want, nil)
	if err == nil {
		err = apply.Blind(seen.Unknown())
	}
	if err != nil {
		return err
	}
	return h.engine.Journal.Save(ctx, state.Adopt(want, seen))
}

// wouldBe is the node as it is kept, else as the configuration says.
func (h *home) wouldBe(ctx context.Context, c config.Config) (state.Desired, error) {
	if err := h.read(ctx); err == nil && h.saved.Live != nil {
		b := h.saved.Bindings.Bindings
		b.ForeignArc = true
		return node.Bind(h.saved.Live.Node, b), nil
	}
	t, err := h.aim(ctx, Input{Config: c})
	if err != nil {
		return nil, err
	}
	if t.at, err = t.locator.locate(ctx, c); err != nil {
		return nil, err
	}
	to, _, err := h.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	b := h.bindingsFor(t).Bindings
	b.Joined, b.ForeignArc = true, true // whose the Arc agent is, only the ledger knew
	return node.Bind(to.Node, b), nil
}
