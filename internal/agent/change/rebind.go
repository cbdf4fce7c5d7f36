package change

import (
	"context"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// rebind takes up the pod subnets that the Node has now, which makes the former pod network drift.
// A repair of only them repairs that network too.
func rebind(ctx context.Context, h *Home, t *transition.Transition) error {
	if len(t.Things) > 0 && !slices.Contains(t.Things, string(inspect.SubnetsKey)) {
		return nil
	}
	is := inspect.OtherSubnets(h.Node, inspect.SeeNode(ctx, h.Node))
	if len(is) == 0 {
		return nil
	}
	h.Warn("the Node has the pod subnets %s now, instead of %s; pods that run keep their addresses "+
		"until they are started again", strings.Join(is, ", "),
		strings.Join(h.Saved.Bindings.PodCIDRs, ", "))
	h.Saved.Bindings.PodCIDRs = is
	if len(t.Things) > 0 {
		for _, item := range h.Saved.Applied.Node {
			if node.IsOwnNetwork(item.Only) {
				t.Things = append(t.Things, string(item.Resource.Key()))
			}
		}
	}
	return h.Store.SaveBindings(ctx)
}
