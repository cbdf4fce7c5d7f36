package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"

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

// commit records that the node is healthy: its generation becomes the applied one, its bindings the
// proved ones. It erases former secrets, unless the provider has not yet answered with the new
// ones. It uncordons the Node last: until that succeeds the transition is not over.
func (w *work) commit(ctx context.Context, t *transition.Transition) error {
	if t.Rejoins || w.bindings.ClusterUID == "" {
		w.bindings.ClusterUID = learnCluster(ctx, w.Home, w.config, w.target())
	}
	w.bindings.FormerCA = w.Saved.Bindings.NextFormerCA(w.bindings.CA)
	w.bindings.Answered = answeredBefore(w)
	w.Saved.Bindings = w.bindings
	err := inTurn(ctx, w.Store.SaveBindings,
		w.commitHistory, w.commitPointers, w.eraseSecrets, w.leaveMetrics, w.Store.PublishApplied)
	if err != nil {
		return err
	}
	if err := collect(ctx, w.Home, w.to); err != nil {
		w.Warn("cannot remove what is no longer needed: %v", err)
	}
	if err := w.release(ctx, *t); err != nil { // the record remains, and the next run continues here
		return fmt.Errorf("the node is healthy, but its Node cannot be uncordoned: %w", err)
	}
	if t.Ungated {
		w.view.End()
	} else {
		w.view.Done("Node " + w.config.Agent.NodeName + " is Ready")
	}
	return nil
}

func (w *work) commitPointers(ctx context.Context) error {
	if t := w.Saved.Transition; t.Kind == transition.Change && t.From != "" && t.From != w.to.ID {
		if err := w.Store.Generations.Point(ctx, generation.Previous, t.From); err != nil {
			return err
		}
	}
	if err := w.Store.Generations.Point(ctx, generation.Applied, w.to.ID); err != nil {
		return err
	}
	w.Saved.Applied = w.to
	return goLive(ctx, w)
}

func (w *work) commitHistory(ctx context.Context) error {
	t := w.Saved.Transition
	if t.Kind != transition.Join && t.Kind != transition.Change {
		return nil
	}
	list, err := w.Saved.ReadHistory()
	inspect.LogError(w.Log, "cannot read the history; starting with an empty one", err)
	if t.ByHand {
		if err := holdBack(ctx, w, *t); err != nil {
			return err
		}
	}
	next := list.Next(t.From, t.To, inspect.Source(w.Node.Env).Applied, inspect.Stamp())
	if err := w.Store.Save(ctx, saved.HistoryFile, next); err != nil {
		return err
	}
	if t.ByHand { // after the history, which has the previously applied generation
		was, _ := next.Last(t.To)
		return w.Store.SetApplied(ctx, was.Resource, inspect.Stamp())
	}
	return nil
}

// eraseSecrets keeps only the credentials of the current node, and the secret for the former way to
// the provider. A bootstrap token works once, as does a principal's secret beside Arc.
func (w *work) eraseSecrets(ctx context.Context) error {
	kept := w.Saved.Secrets[w.to.ID]
	kept.BootstrapToken = ""
	if w.config.Azure.AuthMode() == config.AuthArc {
		kept.ClientSecret = "" // it was only needed to enrol the machine
	}
	next := saved.Secrets{w.to.ID: kept}
	if id := w.bindings.Answered; id != "" && id != w.to.ID {
		next[id] = config.Credentials{ClientSecret: w.Saved.Secrets[id].ClientSecret}
	}
	w.Saved.Secrets = next
	if err := errors.Join(w.Store.SaveSecrets(ctx), eraseOnboarding(ctx, w)); err != nil {
		return err
	}
	cache, err := access.Cache(w.Node, w.config)
	if err == nil {
		err = cache.Clean()
	}
	if err != nil { // the node is healthy all the same
		w.Warn("previous tokens may still be kept: %v", err)
	}
	return nil
}

// eraseOnboarding removes the Arc enrolment secret from the delivered configuration.
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

// leaveMetrics removes the metrics from their former file: the service may not run, or only warn.
func (w *work) leaveMetrics(ctx context.Context) error {
	t := w.Saved.Transition
	if t.Kind != transition.Change {
		return nil
	}
	from, err := w.Saved.Generations.Config(t.From)
	if err != nil {
		return err
	}
	former := from.Agent.Metrics.Textfile
	if former == w.config.Agent.Metrics.Textfile {
		return nil
	}
	if err := RemoveMetrics(ctx, w.Home, former); err != nil {
		w.Warn("previous metrics remain in %s: %v", former, err)
	}
	return nil
}

// collect removes the generations and artifacts that no kept generation and not next refers to.
func collect(ctx context.Context, h *Home, next *generation.Generation) error {
	previous, err := h.Saved.Former(ctx)
	id, err2 := h.Saved.Generations.Target(ctx, generation.Previous) // kept even if it is damaged
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	ids, kept := []string{h.Saved.Bindings.Answered, id}, []string(nil)
	for _, g := range []*generation.Generation{next, h.Saved.Live, h.Saved.Applied, previous} {
		if g == nil {
			continue
		}
		ids = append(ids, g.ID)
		for _, dir := range g.Facts.Store {
			kept = append(kept, path.Base(dir))
		}
	}
	if list, err := h.Saved.ReadHistory(); err == nil {
		ids = append(ids, list.IDs()...)
	}
	if err := h.Store.Generations.Collect(ctx, ids...); err != nil {
		return err
	}
	return artifact.Collect(h.Path(node.StoreDir), kept, h.Agent.Machine.Touched)
}

// RemoveMetrics removes a file of metrics, "" for none.
func RemoveMetrics(ctx context.Context, h *Home, file string) error {
	if file == "" {
		return nil
	}
	is, err := h.Agent.Machine.Observe(ctx, state.PathKey(file))
	if _, written := is.(state.File); err != nil || !written {
		return err
	}
	return h.Agent.Machine.Set(ctx, state.Change{From: is, To: state.Absent{Path: file}, Undo: true},
		nil)
}
