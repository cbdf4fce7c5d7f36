package change

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// work carries out one transition. Its methods named after phases implement them.
type work struct {
	*Home
	// to is the generation that the machine becomes, config its configuration with credentials.
	to        *generation.Generation
	config    config.Config
	bindings  saved.Bindings // the bindings of to; committing makes them the proved ones
	artifacts []artifact.Artifact
	healing   []string // names the artifacts that are fetched although they are in the store
	fetch     *artifact.Download
	// met are the needs that are met; deadline is the time by which the others must be.
	met      map[state.Need]bool
	deadline time.Time
	ready    time.Time       // when the Node became Ready in a join
	evidence health.Evidence // the last input of the gate, client the client for it, or nil
	client   *kube.Client
	seen     []health.Condition // the gate's last conditions
}

func begin(h *Home, t *transition.Transition) (*work, error) {
	to, err := h.Saved.Generations.Load(t.To)
	if err != nil {
		return nil, err
	}
	w := &work{Home: h, to: &to, config: h.Saved.ConfigOf(&to), bindings: h.Saved.Bindings}
	w.bindings.PodCIDRs = inspect.Subnets(h.Node, w.config)
	if t.Cluster != nil {
		w.bindings.Server, w.bindings.CA = t.Cluster.Server, t.Cluster.CA
	}
	// A kubelet that has lost its credential joins again. An ungated repair only compares.
	w.bindings.Joined = h.Saved.Joined() && (t.Ungated || access.Held(h.Node, w.config))
	t.Rejoins = t.Rejoins || h.Saved.Joined() && !w.bindings.Joined
	w.bindings.Rebound = h.Saved.Joined() && !t.Rejoins && (w.bindings.Rebound || t.Cluster != nil)
	w.met = map[state.Need]bool{
		node.Credential: w.bindings.Joined,
		node.Network:    len(w.bindings.PodCIDRs) > 0 || len(w.bindings.ForeignCNI) > 0,
		node.Ready:      w.bindings.Joined,
	}
	w.Engine.Emit, w.Engine.Wait = w.view.Changed, w.wait
	return w, nil
}

func (w *work) target() inspect.Cluster {
	return inspect.Cluster{Server: w.bindings.Server, CA: w.bindings.CA}
}

// run carries out a transition, up to a phase; "" runs all of it.
func run(ctx context.Context, h *Home, t transition.Transition, until transition.Phase) error {
	if err := rebind(ctx, h, &t); err != nil {
		return err
	}
	w, err := begin(h, &t)
	if err != nil {
		return err
	}
	defer func() { w.fetch.End() }()
	runner := transition.Runner{
		Steps: map[transition.Phase]transition.Step{
			transition.Prefetch: w.prefetch, transition.Enrol: w.enrol,
			transition.Prove: w.proveChange, transition.Ask: w.ask,
			transition.Cordon: w.cordon, transition.Drain: w.drain, transition.Apply: w.apply,
			transition.Restore: w.restore, transition.Gate: w.gate, transition.Commit: w.commit,
		},
		Save: h.Store.SaveTransition, Clear: h.Store.ClearTransition, Now: inspect.Stamp,
		Reject: func(ctx context.Context, t transition.Transition, cause error) error {
			return reject(ctx, h, t, cause)
		},
		Release: w.release,
	}
	began := time.Now()
	err = runner.Run(ctx, t, until)
	kind := transition.Of(err).Kind
	if h.Agent.Ended != nil && kind != transition.Waits && kind != transition.Busy {
		h.Agent.Ended(t.Kind, resultOf(ctx, err), time.Since(began))
	}
	return err
}

func resultOf(ctx context.Context, err error) string {
	kind := transition.Of(err).Kind
	ended := kind == transition.Done || kind == transition.RolledBack || kind == transition.Refused
	if !ended && transition.Interrupted(ctx, err) {
		return "interrupted"
	}
	return string(kind)
}

// prefetch fetches and verifies every artifact while the node works. A first join only starts the
// downloads, and waits for each artifact when it needs it.
func (w *work) prefetch(ctx context.Context, t *transition.Transition) error {
	if err := inTurn(ctx, w.claimStore, w.findArtifacts, w.oweHealed); err != nil {
		return err
	}
	first := w.artifacts
	if !w.met[node.Ready] {
		first = slices.DeleteFunc(slices.Clone(first), func(a artifact.Artifact) bool { return a.Late })
	}
	startFetching(ctx, w, first)
	if t.Kind == transition.Join {
		return nil
	}
	if err := w.fetch.WaitAll(ctx, time.Tick(askPause), w.Agent.Waits); err != nil {
		return fmt.Errorf("cannot download the artifacts of the configuration; nothing was changed: %w",
			err)
	}
	return healed(ctx, w)
}

func startFetching(ctx context.Context, w *work, arts []artifact.Artifact) {
	w.fetch.End()
	fetcher := &artifact.Fetcher{
		Store: w.Path(node.StoreDir), Artifacts: arts, Source: source(w.Home, w.config),
		Events: func(e artifact.Event) { downloads(w.Agent, e) }, Touch: w.Agent.Machine.Touched,
	}
	for _, name := range w.healing {
		fetcher.Heal = append(fetcher.Heal, path.Base(w.to.Facts.Store[name]))
	}
	w.fetch = fetcher.Start(ctx)
}

// findArtifacts resolves the artifacts, unless the store has everything for the generation.
func (w *work) findArtifacts(ctx context.Context) (err error) {
	if w.healing, err = toHeal(ctx, w, w.Saved.Transition); err != nil {
		return err
	}
	missing := len(w.healing) > 0
	for _, dir := range w.to.Facts.Store {
		is, err := w.Agent.Machine.Observe(ctx, state.PathKey(dir))
		if err != nil {
			return err
		}
		_, there := is.(state.Dir)
		missing = missing || !there
	}
	if !missing {
		return nil
	}
	arts, err := artifact.Resolve(ctx, source(w.Home, w.config),
		artifact.Wanted(w.config, w.to.Facts.Arch), w.config.Artifacts.Overrides)
	if err != nil {
		return err
	}
	for _, a := range arts {
		if id := path.Base(w.to.Facts.Store[string(a.Name)]); id != a.ID {
			return fmt.Errorf("cannot fetch %s: its digest is %.12s now and was %.12s when the "+
				"configuration was accepted; pin it with artifacts.overrides", a, a.ID, id)
		}
	}
	w.artifacts = arts
	return nil
}

// claimStore claims the directories that are written first: for the log and the artifacts.
func (w *work) claimStore(ctx context.Context) error {
	plan, _, err := w.compare(ctx)
	if err != nil {
		return err
	}
	w.view.Quiet = true
	defer func() { w.view.Quiet = false }()
	return w.Engine.Apply(ctx, plan.Only(node.Foundation(w.config).Keys()))
}

// compare plans the changes to the node, up to its first unmet need. Only a repair or rollback
// continues if something cannot be observed.
func (w *work) compare(ctx context.Context) (state.Plan, state.Need, error) {
	b, spared := w.bindings.Bindings, state.Desired(nil)
	if w.Saved.Transition.Ungated {
		b, spared = inspect.Standing(w.Node, w.to, b)
	}
	b, err := inspect.WithArc(ctx, w.Node, w.to.Node, b)
	if err != nil {
		return nil, "", err
	}
	bound := node.Bind(w.to.Node, w.Saved.Bound(b, w.to))
	now, later, need := bound.Cut(func(n state.Need) bool { return w.met[n] })
	plan, unknown, err := w.Engine.Plan(ctx, now, slices.Concat(later, spared,
		inspect.StandingArc(w.Node), inspect.StandingSwap(w.Node, w.to.Config)))
	if err != nil {
		return nil, "", err
	}
	err = apply.Blind(unknown)
	if kind := w.Saved.Transition.Kind; kind == transition.Repair || kind == transition.Rollback {
		inspect.LogError(w.Log, "continuing with the state that can be observed", err)
		err = nil
	}
	return plan, need, err
}

// proveChange checks a new credential or address, and that the provider answers a new way to poll.
// It records whether the Node is under no pressure.
func (w *work) proveChange(ctx context.Context, t *transition.Transition) error {
	if t.From == "" {
		return nil
	}
	if !t.Touched { // else the change that it follows may be the cause
		n := inspect.SeeNode(ctx, w.Node)
		t.Unpressed = n.OK() && kube.Unpressed(n.Value)
	}
	from, err := w.Saved.Generations.Load(t.From)
	if err != nil {
		return err
	}
	before := w.Saved.ConfigOf(&from)
	if !access.SameIdentity(before, w.config) || t.Cluster != nil {
		if err := access.Prove(ctx, w.Home, w.config, w.target()); err != nil {
			return err
		}
	}
	next := follow.MannerOf(w.config)
	if next.SameWay(follow.MannerOf(before)) || next.SameWay(FormerManner(w.Home)) {
		return nil
	}
	return follow.Prove(ctx, question(w.Home, followed(w.Node.Env), next))
}

// apply changes the machine. After an interrupted process it also continues the downloads.
func (w *work) apply(ctx context.Context, t *transition.Transition) error {
	if w.fetch == nil {
		if err := w.prefetch(ctx, t); err != nil {
			return err
		}
	}
	return w.become(ctx, t)
}

// become brings the machine to the generation, and learns on the way what that needs.
func (w *work) become(ctx context.Context, t *transition.Transition) error {
	if err := errors.Join(goLive(ctx, w), w.Engine.Resume(ctx)); err != nil {
		return err
	}
	for {
		plan, need, err := w.compare(ctx)
		if err != nil {
			return err
		}
		if err := w.Engine.Apply(ctx, chosen(plan, t)); err != nil {
			return err
		}
		if need == "" {
			return nil
		}
		if err := learn(ctx, w, need); err != nil {
			w.view.Fail()
			return err
		}
	}
}

// chosen returns the changes that a transition makes: a repair of given things makes only theirs,
// and restarts. It was asked for, so it keeps no copies, which would pile up.
func chosen(plan state.Plan, t *transition.Transition) state.Plan {
	if !t.Ungated {
		return plan
	}
	var list state.Plan
	for _, c := range plan {
		if c.Keep = false; c.Restart || concerns(t, c.To.Key()) {
			list = append(list, c)
		}
	}
	return list
}

// concerns reports whether a transition is about a thing; a repair may be of given things only.
func concerns(t *transition.Transition, key state.Key) bool {
	return len(t.Things) == 0 || slices.Contains(t.Things, string(key))
}

// restore brings the machine back to its old state. Everything needed is on the machine.
func (w *work) restore(ctx context.Context, t *transition.Transition) error {
	to, err := w.Saved.Generations.Load(t.To)
	if err != nil {
		return err
	}
	w.to, w.config, w.bindings = &to, w.Saved.ConfigOf(&to), w.Saved.Bindings
	w.bindings.PodCIDRs = inspect.Subnets(w.Node, w.config)
	w.Warn("the new configuration does not work (%s); rolling back", transition.FirstLine(t.Cause))
	w.met = map[state.Need]bool{node.Credential: true, node.Network: true, node.Ready: true}
	return w.become(ctx, t)
}

// goLive makes the generation live, which kubelet's credential plugin reads.
func goLive(ctx context.Context, w *work) error {
	if err := w.Store.Generations.Point(ctx, generation.Live, w.to.ID); err != nil {
		return err
	}
	w.Saved.Live = w.to
	return nil
}
