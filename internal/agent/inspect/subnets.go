package inspect

import (
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// SubnetsKey names the pod subnets among the things that drift.
const SubnetsKey state.Key = "node:subnets"

// OtherSubnets returns the pod subnets that the Node has now, where those are not the ones that the
// node's own pod network was made with: the Node was registered again. It returns nil otherwise.
func OtherSubnets(h *Node, seen health.Answer[kube.Node]) []string {
	g := h.Saved.Applied
	if !seen.OK() || g == nil || g.Config.CNI.PodCIDR != "" || len(h.Saved.Bindings.PodCIDRs) == 0 {
		return nil
	}
	is := PodCIDRs(seen.Value)
	b, _ := Standing(h, g, h.Saved.Bindings.Bindings)
	if len(b.ForeignCNI) > 0 || slices.Equal(is, h.Saved.Bindings.PodCIDRs) {
		return nil
	}
	return is
}

// subnetDrift lists other pod subnets as drift.
func subnetDrift(h *Node, seen health.Answer[kube.Node]) []Entry {
	is := OtherSubnets(h, seen)
	if len(is) == 0 {
		return nil
	}
	return []Entry{{Key: SubnetsKey, Step: state.CNI, Action: "give pods the subnets of the Node",
		Expected: strings.Join(is, ", "), Found: strings.Join(h.Saved.Bindings.PodCIDRs, ", ")}}
}
