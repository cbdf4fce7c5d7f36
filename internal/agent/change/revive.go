package change

import (
	"context"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// reviveRuntime restarts a container runtime that runs and does not serve kubelet: no change of a
// file would have it do so. The restart is owed before anything is done.
func reviveRuntime(ctx context.Context, w *work, t *transition.Transition) error {
	key := string(state.UnitKey(node.ContainerdUnit))
	if len(t.Things) > 0 && !slices.Contains(t.Things, key) ||
		!inspect.RuntimeLost(ctx, w.Home.Node) {
		return nil
	}
	w.Warn("containerd runs and does not serve kubelet; restarting it")
	if err := w.Engine.Owe(ctx, node.ContainerdUnit); err != nil {
		return err
	}
	return restartOwed(ctx, w)
}
