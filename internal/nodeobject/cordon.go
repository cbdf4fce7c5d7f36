package nodeobject

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

func cordon(v view) state.Cordon { return state.Cordon{On: v.node.Spec.Unschedulable} }

func (h *Host) setCordon(ctx context.Context, client *kube.Client, to state.Cordon) error {
	err := client.Cordon(ctx, h.Node, to.On)
	if to.On {
		return err
	}
	return orGone(err)
}

// orGone ignores a missing Node in an undo: its settings are gone with it.
func orGone(err error) error {
	if kube.NodeMissing(err) {
		return nil
	}
	return err
}
