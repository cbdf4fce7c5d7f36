package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// commit records that the node is healthy as it is now: the generation is the applied one, its
// bindings are the proved ones, and what no kept generation refers to is removed. The secret of the
// previous generation is erased, now that the new one is proved, unless the provider has not
// answered with the new one yet. The Node is uncordoned last: while
// that fails the transition is not over.
func (w *work) commit(ctx context.Context, t *transition.Transition) error {
	w.bindings.ClusterUID = w.learnCluster(ctx, w.config, w.target())
	w.bindings.FormerCA = w.home.saved.Bindings.NextFormerCA(w.bindings.CA)
	w.bindings.Answered = w.answeredBefore()
	w.home.saved.Bindings = w.bindings
	if err := w.saved.SaveBindings(ctx); err != nil {
		return err
	}
	if err := w.commitHistory(ctx, t); err != nil {
		return err
	}
	previous, err := w.commitPointers(ctx, t)
	if err != nil {
		return err
	}
	if err := w.eraseSecrets(ctx); err != nil {
		return err
	}
	w.leaveMetrics(ctx, t, previous)
	if err := w.saved.PublishApplied(ctx, w.to, previous); err != nil {
		return err
	}
	if err := w.collect(ctx, previous); err != nil {
		return err
	}
	if err := w.release(ctx, *t); err != nil { // the record remains, and the next run goes on here
		return fmt.Errorf("the node is healthy, and its Node cannot be uncordoned: %w", err)
	}
	if t.Ungated {
		w.view.end()
	} else {
		w.view.done("Node " + w.config.Agent.NodeName + " is Ready")
	}
	return nil
}

// commitPointers makes the generation the applied one, and the one before it the previous one. It
// returns the previous one, nil when there is none.
func (w *work) commitPointers(
	ctx context.Context, t *transition.Transition,
) (*generation.Generation, error) {
	if t.Kind == transition.Change && t.From != "" && t.From != w.to.ID {
		if err := w.saved.Generations.Point(ctx, generation.Previous, t.From); err != nil {
			return nil, err
		}
	}
	for _, p := range []generation.Pointer{generation.Applied, generation.Live} {
		if err := w.saved.Generations.Point(ctx, p, w.to.ID); err != nil {
			return nil, err
		}
	}
	w.saved.Live, w.saved.Applied = w.to, w.to
	return w.saved.Generations.Read(ctx, generation.Previous)
}

// commitHistory writes down that the generation was proved. One that a person has gone back to
// holds back the document of the one that was left.
func (w *work) commitHistory(ctx context.Context, t *transition.Transition) error {
	if t.Kind != transition.Join && t.Kind != transition.Change {
		return nil
	}
	list, err := w.saved.ReadHistory()
	if err != nil {
		w.Log.Warn("the history cannot be read and begins anew", "error", err)
	}
	if t.ByHand {
		if err := w.holdBack(ctx, *t); err != nil {
			return err
		}
	}
	next := list.Next(t.From, t.To, w.appliedResource(), stamp())
	if err := w.saved.Save(ctx, saved.HistoryFile, next); err != nil {
		return err
	}
	if t.ByHand { // comes after the history, which has what was applied before
		was, _ := next.Last(t.To)
		return w.records().SetApplied(ctx, was.Resource)
	}
	return nil
}

// eraseSecrets keeps only the credentials of the node as it is now, and the secret of the former
// way to the provider. A bootstrap token serves one join, and the secret of a service principal
// beside Arc one enrolment.
func (w *work) eraseSecrets(ctx context.Context) error {
	kept := w.saved.Secrets[w.to.ID]
	kept.BootstrapToken = ""
	if w.config.Azure.AuthMode() == config.AuthArc {
		kept.ClientSecret = "" // it has enrolled the machine, and nothing else needs it
	}
	next := saved.Secrets{w.to.ID: kept}
	if id := w.bindings.Answered; id != "" && id != w.to.ID {
		next[id] = config.Credentials{ClientSecret: w.saved.Secrets[id].ClientSecret}
	}
	w.saved.Secrets = next
	if err := errors.Join(w.saved.SaveSecrets(ctx), w.eraseOnboarding(ctx)); err != nil {
		return err
	}
	if w.config.Azure.BootstrapToken != nil {
		return nil
	}
	cache, err := w.tokenCache(w.config)
	if err == nil {
		err = cache.Clean(cache.Key)
	}
	if err != nil { // the node is healthy all the same
		w.warn("tokens of before may still be kept: %v", err)
	}
	return nil
}

// eraseOnboarding takes the secret that has enrolled the machine with Arc out of the configuration
// that a provider has delivered, unless that is another one by now.
func (w *work) eraseOnboarding(ctx context.Context) error {
	if w.config.Azure.AuthMode() != config.AuthArc {
		return nil
	}
	w.bundle.Lock()
	defer w.bundle.Unlock()
	digest, err := w.records().BundleDigest()
	if err != nil || digest != w.to.Received {
		return err
	}
	data, err := w.Machine.ReadFile(saved.BundleFile)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", saved.BundleFile, err)
	}
	without, err := config.WithoutOnboarding(data)
	if err != nil || bytes.Equal(data, without) {
		return err
	}
	return w.records().KeepBundle(ctx, without)
}

// leaveMetrics removes the metrics of the generation before, where nobody writes them any more: the
// service may not run, or may have begun anew. The node is healthy all the same where they remain.
func (w *work) leaveMetrics(
	ctx context.Context, t *transition.Transition, previous *generation.Generation,
) {
	if t.Kind != transition.Change || previous == nil {
		return
	}
	former := previous.Config.Agent.Metrics.Textfile
	if former == "" || former == w.config.Agent.Metrics.Textfile {
		return
	}
	if err := w.removeMetrics(ctx, former); err != nil {
		w.warn("metrics of before remain in %s: %v", former, err)
	}
}

// collect removes the generations that are not in the history, and the artifacts that neither the
// node nor the one before refers to.
func (w *work) collect(ctx context.Context, previous *generation.Generation) error {
	keep := map[string]bool{}
	ids := []string{w.to.ID, w.bindings.Answered}
	add := func(f node.Facts) {
		for _, dir := range f.Store {
			keep[path.Base(dir)] = true
		}
	}
	add(w.to.Facts)
	if previous != nil {
		ids = append(ids, previous.ID)
		add(previous.Facts)
	}
	if list, err := w.saved.ReadHistory(); err == nil {
		ids = append(ids, list.IDs()...)
	}
	if err := w.saved.Generations.Collect(ctx, ids...); err != nil {
		return err
	}
	kept := slices.Sorted(maps.Keys(keep))
	_, err := artifact.Collect(w.path(node.StoreDir), kept, w.Machine.Touched)
	return err
}
