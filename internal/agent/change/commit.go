package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// commit records that the node is healthy as it is now: the generation is the applied one, its
// bindings are the proved ones, and what no kept one refers to is removed. The previous one's
// secret is erased, now that the new one is proved, unless the provider has not answered with the
// new one yet. The Node is uncordoned last: while that fails the transition is not over.
func (w *work) commit(ctx context.Context, t *transition.Transition) error {
	w.bindings.ClusterUID = learnCluster(ctx, w.Home, w.config, w.target())
	w.bindings.FormerCA = w.Saved.Bindings.NextFormerCA(w.bindings.CA)
	w.bindings.Answered = answeredBefore(w)
	w.Saved.Bindings = w.bindings
	if err := w.Store.SaveBindings(ctx); err != nil {
		return err
	}
	if err := commitHistory(ctx, w, t); err != nil {
		return err
	}
	previous, err := commitPointers(ctx, w, t)
	if err != nil {
		return err
	}
	if err := eraseSecrets(ctx, w); err != nil {
		return err
	}
	leaveMetrics(ctx, w, t, previous)
	if err := w.Store.PublishApplied(ctx, w.to, previous); err != nil {
		return err
	}
	if err := collect(ctx, w.Home, w.to); err != nil {
		return err
	}
	if err := w.release(ctx, *t); err != nil { // the record remains, and the next run goes on here
		return fmt.Errorf("the node is healthy, and its Node cannot be uncordoned: %w", err)
	}
	if t.Ungated {
		w.view.End()
	} else {
		w.view.Done("Node " + w.config.Agent.NodeName + " is Ready")
	}
	return nil
}

// commitPointers makes the generation the applied one, and the one before it the previous one. It
// returns the previous one, or nil.
func commitPointers(
	ctx context.Context, w *work, t *transition.Transition,
) (*generation.Generation, error) {
	if t.Kind == transition.Change && t.From != "" && t.From != w.to.ID {
		if err := w.Store.Generations.Point(ctx, generation.Previous, t.From); err != nil {
			return nil, err
		}
	}
	for _, p := range []generation.Pointer{generation.Applied, generation.Live} {
		if err := w.Store.Generations.Point(ctx, p, w.to.ID); err != nil {
			return nil, err
		}
	}
	w.Saved.Live, w.Saved.Applied = w.to, w.to
	return w.Saved.Generations.Read(ctx, generation.Previous)
}

// commitHistory writes down that the generation was proved. One that a person has gone back to
// holds back the document of the one that was left.
func commitHistory(ctx context.Context, w *work, t *transition.Transition) error {
	if t.Kind != transition.Join && t.Kind != transition.Change {
		return nil
	}
	list, err := w.Saved.ReadHistory()
	if err != nil {
		w.Log.Warn("the history cannot be read and begins anew", "error", err)
	}
	if t.ByHand {
		if err := holdBack(ctx, w, *t); err != nil {
			return err
		}
	}
	next := list.Next(t.From, t.To, inspect.AppliedResource(w.Home.Node.Env), inspect.Stamp())
	if err := w.Store.Save(ctx, saved.HistoryFile, next); err != nil {
		return err
	}
	if t.ByHand { // comes after the history, which has what was applied before
		was, _ := next.Last(t.To)
		return w.Store.SetApplied(ctx, was.Resource, inspect.Stamp())
	}
	return nil
}

// eraseSecrets keeps only the credentials of the node as it is now, and the secret of the former
// way to the provider. A bootstrap token serves one join, and the secret of a service principal
// beside Arc one enrolment.
func eraseSecrets(ctx context.Context, w *work) error {
	kept := w.Saved.Secrets[w.to.ID]
	kept.BootstrapToken = ""
	if w.config.Azure.AuthMode() == config.AuthArc {
		kept.ClientSecret = "" // it has enrolled the machine, and nothing else needs it
	}
	next := saved.Secrets{w.to.ID: kept}
	if id := w.bindings.Answered; id != "" && id != w.to.ID {
		next[id] = config.Credentials{ClientSecret: w.Saved.Secrets[id].ClientSecret}
	}
	w.Saved.Secrets = next
	if err := errors.Join(w.Store.SaveSecrets(ctx), eraseOnboarding(ctx, w)); err != nil {
		return err
	}
	if w.config.Azure.BootstrapToken != nil {
		return nil
	}
	cache, err := access.Cache(w.Home.Node, w.config)
	if err == nil {
		err = cache.Clean(cache.Key)
	}
	if err != nil { // the node is healthy all the same
		w.Warn("tokens of before may still be kept: %v", err)
	}
	return nil
}

// eraseOnboarding takes the secret that has enrolled the machine with Arc out of the configuration
// that a provider has delivered, unless that is another one by now.
func eraseOnboarding(ctx context.Context, w *work) error {
	if w.config.Azure.AuthMode() != config.AuthArc {
		return nil
	}
	w.Agent.Bundle.Lock()
	defer w.Agent.Bundle.Unlock()
	digest, err := w.Records().BundleDigest()
	if err != nil || digest != w.to.Received {
		return err
	}
	data, err := w.Records().Bundle()
	if err != nil {
		return err
	}
	without, err := config.WithoutOnboarding(data)
	if err != nil || bytes.Equal(data, without) {
		return err
	}
	return w.Store.KeepBundle(ctx, without, w.config)
}

// leaveMetrics removes the metrics of the previous generation where no process writes them any
// more: the service may not run, or may have restarted. The node is healthy all the same where they
// remain.
func leaveMetrics(
	ctx context.Context, w *work, t *transition.Transition, previous *generation.Generation,
) {
	if t.Kind != transition.Change || previous == nil {
		return
	}
	former := previous.Config.Agent.Metrics.Textfile
	if former == "" || former == w.config.Agent.Metrics.Textfile {
		return
	}
	if err := RemoveMetrics(ctx, w.Home, former); err != nil {
		w.Warn("metrics of before remain in %s: %v", former, err)
	}
}

// collect removes the generations that neither the pointers nor the history refer to, and the
// artifacts that neither the node, nor the one before it, nor next refers to.
func collect(ctx context.Context, h *Home, next *generation.Generation) error {
	ids := []string{h.Saved.Bindings.Answered}
	keep := map[string]bool{}
	add := func(g *generation.Generation) {
		if g == nil {
			return
		}
		ids = append(ids, g.ID)
		for _, dir := range g.Facts.Store {
			keep[path.Base(dir)] = true
		}
	}
	previous, err := h.Saved.Generations.Read(ctx, generation.Previous)
	if err != nil {
		return err
	}
	for _, g := range []*generation.Generation{next, h.Saved.Live, h.Saved.Applied, previous} {
		add(g)
	}
	if list, err := h.Saved.ReadHistory(); err == nil {
		ids = append(ids, list.IDs()...)
	}
	if err := h.Store.Generations.Collect(ctx, ids...); err != nil {
		return err
	}
	kept := slices.Sorted(maps.Keys(keep))
	return artifact.Collect(h.Path(node.StoreDir), kept, h.Agent.Machine.Touched)
}

// RemoveMetrics removes the file that metrics were written to.
func RemoveMetrics(ctx context.Context, h *Home, file string) error {
	is, err := h.Agent.Machine.Observe(ctx, state.PathKey(file))
	if _, written := is.(state.File); err != nil || !written {
		return err
	}
	return h.Agent.Machine.Set(ctx, state.Change{From: is, To: state.Absent{Path: file}, Undo: true},
		nil)
}
