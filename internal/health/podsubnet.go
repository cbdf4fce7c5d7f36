package health

import (
	"slices"
	"strings"
)

// podSubnetsAgree: a Node that is registered again may be given other pod subnets, and the cluster
// gives the former ones to another node.
func podSubnetsAgree(e Evidence) Condition {
	switch {
	case !e.Node.OK():
		return e.Node.missing()
	case !e.Wanted.Allocated || len(e.Machine.PodCIDRs) == 0:
		return holds()
	}
	is := e.Node.Value.Spec.PodCIDRs
	if len(is) == 0 && e.Node.Value.Spec.PodCIDR != "" {
		is = []string{e.Node.Value.Spec.PodCIDR}
	}
	uses := strings.Join(e.Machine.PodCIDRs, ", ")
	switch {
	case len(is) == 0:
		return unknown("NotAllocated",
			"the Node has no pod subnet, and pods here have addresses of "+uses)
	case slices.Equal(is, e.Machine.PodCIDRs):
		return holds()
	}
	return fails(OwnerMachine, "SubnetsDiffer", "the Node has the pod subnets "+strings.Join(is, ", ")+
		", and pods here have addresses of "+uses+", which the cluster may give to another node; run "+
		"`aks-flex-node bootstrap`, and then delete the pods that have addresses of those")
}
