package front

import (
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// guesses is the number of subnets that are tried for a node before the whole pool is read.
const guesses = 8

// reserveSubnet reserves a pod subnet for a node, in the change that writes the node.
func (a *API) reserveSubnet(v *store.View, r *request, c flexnode.Cluster) (string, error) {
	if err := a.knowSubnets(v, c); err != nil {
		return "", err
	}
	p, taken := c.Properties, map[string]bool(nil)
	for n := 0; ; n++ {
		key, subnet, ok := flexnode.Slot(r.clusterKey(), r.nodeKey(), p.PodCIDR, p.NodeCIDRMask, n)
		if !ok {
			return "", arm.Errorf(409, "PodCIDRExhausted",
				"All %d pod subnets of the cluster are in use. Set a larger podCidr for the cluster, or "+
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

// subnetsNotKnown is the error while the pod subnets of the cluster's Nodes are unknown: they have
// not been seen in that epoch of the store. This lasts about a second after the registration of a
// cluster, which may have Nodes of a previous registration, and after a restore.
type subnetsNotKnown struct{ epoch int64 }

func (subnetsNotKnown) Error() string { return "the pod subnets of the Nodes are not known" }

// ARM returns the error that the caller sees.
func (subnetsNotKnown) ARM() *arm.Error {
	return arm.Errorf(503, "PodSubnetsNotKnown",
		"The provider does not know yet which pod subnets the cluster's Nodes have. Try again: it "+
			"takes about a second once the cluster is reached, as its property 'reachable' tells.")
}

// knowSubnets returns subnetsNotKnown, unless the pod subnets of the cluster's Nodes are known.
func (a *API) knowSubnets(v *store.View, c flexnode.Cluster) error {
	epoch, err := a.Store.Epoch(v)
	if err != nil || c.SubnetsEpoch >= epoch {
		return err
	}
	return subnetsNotKnown{epoch}
}
