package nodeobject

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

func label(v view, name string) state.Label {
	value, set := v.node.Labels[name]
	return state.Label{Name: name, Value: value, Set: set}
}

func (h *Host) setLabel(ctx context.Context, client *kube.Client, to state.Label) error {
	if to.Set {
		return client.PatchLabels(ctx, h.Node, map[string]*string{to.Name: &to.Value})
	}
	return orGone(client.PatchLabels(ctx, h.Node, map[string]*string{to.Name: nil}))
}
