package nodeobject

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

func cordon(v view) state.Cordon { return state.Cordon{On: v.node.Spec.Unschedulable} }

func (h *Host) setCordon(ctx context.Context, client *kube.Client, to state.Cordon) error {
	if to.On {
		return client.Cordon(ctx, h.Node)
	}
	return orGone(client.Uncordon(ctx, h.Node))
}

// orGone is the error of an undoing: what a Node had is gone with it.
func orGone(err error) error {
	if kube.NodeMissing(err) {
		return nil
	}
	return err
}
