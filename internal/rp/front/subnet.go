package front

import (
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// guesses limits the places that are tried for a node's pod subnet before all of the pool is read.
const guesses = 8

// reserveSubnet reserves a pod subnet for a node, in the change that writes the node.
func (a *API) reserveSubnet(v *store.View, r *request, c flexnode.Cluster) (string, error) {
	if epoch := a.Store.Epoch(v); c.SubnetsEpoch < epoch {
		return "", subnetsNotKnown{epoch}
	}
	p, taken := c.Properties, map[string]bool(nil)
	for n := 0; ; n++ {
		key, subnet, ok := flexnode.Slot(r.clusterKey(), r.nodeKey(), p.PodCIDR, p.NodeCIDRMask, n)
		if !ok {
			return "", arm.Errorf(409, "PodCIDRExhausted",
				"All %d pod subnets of the cluster are in use. Give the cluster a larger podCidr or "+
					"delete flexNodeConfigs that are not needed.",
				flexnode.Slots(p.PodCIDR, p.NodeCIDRMask))
		}
		if n == guesses { // the pool is rather full
			rows, _, err := a.Store.PodCIDRs.List(v.Context(), r.clusterKey()+"/")
			if err != nil {
				return "", err
			}
			taken = make(map[string]bool, len(rows))
			for _, row := range rows {
				taken[row.Key] = row.Value != r.nodeKey()
			}
		}
		if taken[key] {
			continue
		}
		row := a.Store.PodCIDRs.Row(v, key)
		if !row.Exists() || row.Value == r.nodeKey() {
			return subnet, a.Store.PodCIDRs.Put(v, key, r.nodeKey())
		}
	}
}

// subnetsNotKnown is that it is not known which pod subnets the cluster's Nodes have: they have not
// been seen in that epoch of the store. So it is for about a second after the registration of a
// cluster, whose Nodes may be those of a former one, and after a restore.
type subnetsNotKnown struct{ epoch int64 }

func (subnetsNotKnown) Error() string { return "the pod subnets of the Nodes are not known" }

// ARM returns the error that the caller sees.
func (subnetsNotKnown) ARM() *arm.Error {
	return arm.Errorf(503, "PodSubnetsNotKnown",
		"The provider does not know yet which pod subnets the cluster's Nodes have. Try again: it "+
			"takes about a second once the cluster is reached, as its property 'reachable' tells.")
}
