package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// runtimeEvidence asks a container runtime that runs, as systemd says, whether it serves kubelet.
// One that does not answer is asked again: by the service, with the next check.
func (h *home) runtimeEvidence(ctx context.Context, e *health.Evidence) {
	if !e.Containerd.OK() || !e.Containerd.Value.Active {
		return
	}
	ask := h.Runtime
	if ask == nil {
		ask = func(ctx context.Context) error {
			return kube.Runtime(ctx, h.path(node.ContainerdSocket))
		}
	}
	for {
		e.Runtime = health.Tried(ask(ctx))
		if !errors.Is(e.Runtime.Err, kube.ErrRuntimeSilent) {
			h.unanswered = 0
			return
		}
		h.unanswered++
		if e.Unanswered = h.unanswered; h.InService || e.Hangs() {
			return
		}
	}
}

// runtimeDrift lists a container runtime that runs and does not serve kubelet as drift of its unit.
func runtimeDrift(e health.Evidence) []Entry {
	found := "running without it"
	switch {
	case e.Hangs():
		found = "not answering"
	case !errors.Is(e.Runtime.Err, kube.ErrNoRuntimeService):
		return nil
	}
	return []Entry{{
		Key: state.UnitKey(node.ContainerdUnit), Step: state.Start,
		Action: "restart " + node.ContainerdUnit, Expected: "running with its CRI plugin",
		Found: found,
	}}
}

// runtimeLost are the entries of runtimeDrift, as the machine is now.
func (h *home) runtimeLost(ctx context.Context) []Entry {
	var e health.Evidence
	e.Containerd = health.Answered(h.service(ctx, node.ContainerdUnit))
	h.runtimeEvidence(ctx, &e)
	return runtimeDrift(e)
}

// reviveRuntime restarts a container runtime that runs and does not serve kubelet: no change of a
// file would have it do so. The restart is owed before anything is done.
func (w *work) reviveRuntime(ctx context.Context, t *transition.Transition) error {
	key := string(state.UnitKey(node.ContainerdUnit))
	if len(t.Things) > 0 && !slices.Contains(t.Things, key) || len(w.runtimeLost(ctx)) == 0 {
		return nil
	}
	w.warn("containerd runs and does not serve kubelet; restarting it")
	if err := w.engine.Owe(ctx, node.ContainerdUnit); err != nil {
		return err
	}
	return w.restartOwed(ctx)
}
