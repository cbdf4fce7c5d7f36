package inspect

import (
	"context"
	"errors"

	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// runtimeEvidence asks a container runtime that runs, as systemd says, whether it serves kubelet.
// One that does not answer is asked again: by the service, with the next check.
func runtimeEvidence(ctx context.Context, h *Node, e *health.Evidence) {
	if !e.Containerd.OK() || !e.Containerd.Value.Active {
		return
	}
	ask := h.Runtime
	if ask == nil {
		ask = func(ctx context.Context) error {
			return kube.Runtime(ctx, h.Path(node.ContainerdSocket))
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

// RuntimeLost are the entries of runtimeDrift, as the machine is now.
func RuntimeLost(ctx context.Context, h *Node) []Entry {
	var e health.Evidence
	e.Containerd = health.Answered(service(ctx, h, node.ContainerdUnit))
	runtimeEvidence(ctx, h, &e)
	return runtimeDrift(e)
}
