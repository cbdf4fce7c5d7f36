package front

import (
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// guesses is how many places are tried for a node's pod subnet before all of the pool is read.
const guesses = 8

// reserveSubnet reserves a pod subnet for a node, in the change that writes the node.
func (a *API) reserveSubnet(
	v *store.View, r *request, c flexnode.Cluster,
) (string, error) {
	if err := a.knowSubnets(v, c); err != nil {
		return "", err
	}
	p := c.Properties
	for n := range guesses {
		key, subnet, ok := flexnode.Slot(r.clusterKey(), r.nodeKey(), p.PodCIDR, p.NodeCIDRMask, n)
		if !ok {
			break
		}
		reserved, err := a.reserve(v, key, r.nodeKey())
		if reserved || err != nil {
			return subnet, err
		}
	}
	return a.reserveAny(v, r, c)
}

// knowSubnets is an error while it is not known which pod subnets are in use: after a restore,
// until the cluster's Nodes were seen.
func (a *API) knowSubnets(v *store.View, c flexnode.Cluster) error {
	epoch, err := a.Store.Epoch(v)
	if err != nil || epoch == 1 || c.SubnetsEpoch >= epoch {
		return err
	}
	return arm.Errorf(503, "PodSubnetsNotKnown",
		"The provider was restored from a backup, and does not know yet which pod subnets the "+
			"cluster's Nodes have. Try again: that takes about a second once the cluster is "+
			"reached, as its property 'reachable' tells.")
}

// reserve takes one place, unless another node has it.
func (a *API) reserve(v *store.View, key, nodeKey string) (bool, error) {
	row, err := a.Store.PodCIDRs.In(v, key)
	if err != nil || row.Exists() && row.Value != nodeKey {
		return false, err
	}
	return true, a.Store.PodCIDRs.Put(v, key, nodeKey)
}

// reserveAny reads all of the pool, which is rather full.
func (a *API) reserveAny(v *store.View, r *request, c flexnode.Cluster) (string, error) {
	p := c.Properties
	rows, _, err := a.Store.PodCIDRs.List(v.Context(), r.clusterKey()+"/")
	if err != nil {
		return "", err
	}
	taken := make(map[string]bool, len(rows))
	for _, row := range rows {
		taken[row.Key] = row.Value != r.nodeKey()
	}
	for n := guesses; ; n++ {
		key, subnet, ok := flexnode.Slot(r.clusterKey(), r.nodeKey(), p.PodCIDR, p.NodeCIDRMask, n)
		if !ok {
			break
		}
		if taken[key] {
			continue
		}
		reserved, err := a.reserve(v, key, r.nodeKey())
		if reserved || err != nil {
			return subnet, err
		}
	}
	return "", arm.Errorf(409, "PodCIDRExhausted",
		"All %d pod subnets of the cluster are in use. Give the cluster a larger podCidr or "+
			"delete flexNodeConfigs that are not "+
			"needed.", flexnode.Slots(p.PodCIDR, p.NodeCIDRMask))
}
