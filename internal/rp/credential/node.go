package credential

import (
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// RemoveNode deletes a node within a change, with all that is its own: what a machine could have
// joined with is revoked, also while one joins with it, and a tombstone is written. wipe tells that
// the node's machine is to be given back. A node that is not there has been removed. It writes ten
// rows at most, and two for each of its credentials that machines still join with.
func (s *Service) RemoveNode(v *store.View, key string, wipe bool, at time.Time) error {
	row := s.Store.Nodes.Row(v, key)
	if !row.Exists() {
		return nil
	}
	n := row.Value
	for _, credential := range append(slices.Clone(n.Joining), n.Credential) {
		if err := s.Revoke(v, credential, true); err != nil {
			return err
		}
	}
	s.freeSubnet(v, key, n)
	s.Store.Nodes.Delete(v, key)
	s.Store.Status.Delete(v, key)
	s.Store.History.Delete(v, key)
	s.Store.Diagnoses.Delete(v, key)
	s.DropSecret(v, key)
	return s.bury(v, key, flexnode.Tombstone{
		UID: n.UID, Revision: max(n.Revision, n.Floor), Identity: n.Identity,
		Former: n.Former, MachineKey: n.MachineKey, Deleted: at.UTC().Truncate(time.Second), Wipe: wipe,
	})
}

// freeSubnet gives a node's pod subnet back, if it is still this node's.
func (s *Service) freeSubnet(v *store.View, key string, n flexnode.Node) {
	if n.Chosen.PodCIDR == "" {
		return
	}
	cluster := s.Store.Clusters.Row(v, flexnode.ClusterOf(key))
	slot := flexnode.SlotOf(flexnode.ClusterOf(key), cluster.Value.Properties.PodCIDR,
		n.Chosen.PodCIDR)
	if slot != "" && s.Store.PodCIDRs.Row(v, slot).Value == key {
		s.Store.PodCIDRs.Delete(v, slot)
	}
}
