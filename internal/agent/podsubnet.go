package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// subnetsKey names the pod subnets among the things that drift.
const subnetsKey state.Key = "node:subnets"

// otherSubnets returns the pod subnets that the Node has now, where those are not the ones that the
// node's own pod network was made with: the Node was registered again. It returns nil otherwise.
func (h *home) otherSubnets(seen health.Answer[kube.Node]) []string {
	g := h.saved.Applied
	if !seen.OK() || g == nil || g.Config.CNI.PodCIDR != "" || len(h.saved.Bindings.PodCIDRs) == 0 {
		return nil
	}
	is := podCIDRs(seen.Value)
	b, _ := h.standing(g, h.saved.Bindings.Bindings)
	if len(b.ForeignCNI) > 0 || slices.Equal(is, h.saved.Bindings.PodCIDRs) {
		return nil
	}
	return is
}

// subnetDrift lists other pod subnets as drift.
func (h *home) subnetDrift(seen health.Answer[kube.Node]) []Entry {
	is := h.otherSubnets(seen)
	if len(is) == 0 {
		return nil
	}
	return []Entry{{Key: subnetsKey, Step: state.CNI, Action: "give pods the subnets of the Node",
		Expected: strings.Join(is, ", "), Found: strings.Join(h.saved.Bindings.PodCIDRs, ", ")}}
}

// rebind takes up the pod subnets that the Node has now, which makes the former pod network drift.
// A repair of only them repairs that network too.
func (h *home) rebind(ctx context.Context, t *transition.Transition) error {
	if len(t.Things) > 0 && !slices.Contains(t.Things, string(subnetsKey)) {
		return nil
	}
	is := h.otherSubnets(h.seeNode(ctx))
	if len(is) == 0 {
		return nil
	}
	h.warn("the Node has the pod subnets %s now, instead of %s; pods that run keep their addresses "+
		"until they are started again", strings.Join(is, ", "),
		strings.Join(h.saved.Bindings.PodCIDRs, ", "))
	h.saved.Bindings.PodCIDRs = is
	if len(t.Things) > 0 {
		for _, item := range h.saved.Applied.Node {
			if node.IsOwnNetwork(item.Only) {
				t.Things = append(t.Things, string(item.Resource.Key()))
			}
		}
	}
	return h.saved.SaveBindings(ctx)
}
