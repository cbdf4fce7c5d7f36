package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// subnetsInterval is how often it is noted which pod subnets Nodes have.
	subnetsInterval = 10 * time.Minute
	// subnetsPause gathers Nodes that go, so that they are noted together.
	subnetsPause = 10 * time.Second
	// nodesPause is how soon it is tried again while not all Nodes are known.
	nodesPause = 200 * time.Millisecond
)

// noteSubnets has the rows of pod subnets say what is in use: a subnet is its node's as long as a
// flexNodeConfig or a Node has it. What a Node has without a row is news after a restore from a
// backup, and when a registration whose machines were released is made again.
func (w *worker) noteSubnets(ctx context.Context) (time.Time, error) {
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	cluster, err := w.Index.Cluster(w.key)
	if err != nil || !cluster.Exists() || cluster.Value.Properties.PodCIDR == "" ||
		cluster.Value.Deleting() {
		return noTime, err
	}
	if !s.nodesKnown.Load() {
		return w.Now().Add(nodesPause), nil
	}
	epoch, err := w.epoch(ctx)
	if err != nil {
		return noTime, err
	}
	rows, _, err := w.Store.PodCIDRs.List(ctx, w.key+"/")
	if err != nil {
		return noTime, err
	}
	of := w.subnetsOfNodes(s, cluster.Value)
	unused := map[string]string{}
	for _, row := range rows {
		owner, inUse := of[row.Key]
		switch {
		case !inUse && !w.isChosen(row.Value, row.Key, cluster.Value):
			unused[row.Key] = row.Value
		case inUse && owner != row.Value:
			w.log.Warn("a Node has the pod subnet of another node", "node", owner, "of", row.Value,
				"subnet", row.Key)
		}
		delete(of, row.Key)
	}
	if err := w.addSubnets(ctx, of); err != nil {
		return noTime, err
	}
	if err := w.freeSubnets(ctx, unused, cluster.Value); err != nil {
		return noTime, err
	}
	return w.Now().Add(subnetsInterval), w.noteSubnetsEpoch(ctx, epoch)
}

// epoch is that of the store.
func (w *worker) epoch(ctx context.Context) (epoch int64, err error) {
	_, err = w.Store.Update(ctx, "", nil, func(v *store.View) error {
		epoch, err = w.Store.Epoch(v)
		return err
	})
	return epoch, err
}

// subnetsOfNodes are the pod subnets that Nodes have, by key of the row, each with the key that the
// flexNodeConfig of its Node has, or would have.
func (w *worker) subnetsOfNodes(s *session, c flexnode.Cluster) map[string]string {
	of := map[string]string{}
	for _, o := range s.nodes.List() {
		n, ok := o.(*seenNode)
		if !ok {
			continue
		}
		key := w.key + "/" + n.name
		for _, subnet := range w.subnetsOf(n, key) {
			for _, slot := range flexnode.Overlapped(w.key, c.Properties.PodCIDR,
				c.Properties.NodeCIDRMask, subnet) {
				of[slot] = key
			}
		}
	}
	return of
}

// subnetsOf are the pod subnets that a Node has. What the cluster has allocated to one with a
// configured subnet is not used.
func (w *worker) subnetsOf(n *seenNode, key string) []string {
	if n.subnets == "" {
		return nil
	}
	if !n.configured {
		node, err := w.Index.Node(key)
		if err == nil && node.Value.Chosen.PodCIDR != "" {
			return nil
		}
	}
	return strings.Split(n.subnets, ",")
}

// isChosen tells whether a node has a pod subnet of its cluster, as far as the index knows.
func (w *worker) isChosen(nodeKey, slot string, c flexnode.Cluster) bool {
	node, err := w.Index.Node(nodeKey)
	return err != nil || chose(node.Value, w.key, slot, c)
}

func chose(n flexnode.Node, cluster, slot string, c flexnode.Cluster) bool {
	return flexnode.SlotOf(cluster, c.Properties.PodCIDR, n.Chosen.PodCIDR) == slot
}

// addSubnets writes rows of pod subnets that have none.
func (w *worker) addSubnets(ctx context.Context, of map[string]string) error {
	_, err := w.Store.UpdateEach(ctx, slices.Sorted(maps.Keys(of)), store.Each{
		What:  "pod subnets noted",
		Ahead: func(slot string) []string { return []string{w.Store.PodCIDRs.Key(slot)} },
		One: func(v *store.View, slot string) error {
			v.Fence(w.owner.Fence())
			row, err := w.Store.PodCIDRs.In(v, slot)
			if err != nil || row.Exists() {
				return err
			}
			return w.Store.PodCIDRs.Put(v, slot, of[slot])
		},
	})
	return err
}

// freeSubnets deletes the rows of pod subnets that no Node has, unless their node has them.
func (w *worker) freeSubnets(
	ctx context.Context, unused map[string]string, c flexnode.Cluster,
) error {
	s := w.Store
	_, err := s.UpdateEach(ctx, slices.Sorted(maps.Keys(unused)), store.Each{
		What: "pod subnets freed",
		Ahead: func(slot string) []string {
			return []string{s.PodCIDRs.Key(slot), s.Nodes.Key(unused[slot])}
		},
		One: func(v *store.View, slot string) error {
			v.Fence(w.owner.Fence())
			row, err := s.PodCIDRs.In(v, slot)
			if err != nil || row.Value != unused[slot] {
				return err
			}
			node, err := s.Nodes.In(v, row.Value)
			if err != nil || chose(node.Value, w.key, slot, c) {
				return err
			}
			s.PodCIDRs.Delete(v, slot)
			return nil
		},
	})
	return err
}

// noteSubnetsEpoch writes that the pod subnets of the cluster's Nodes were noted in an epoch: new
// ones may be given out.
func (w *worker) noteSubnetsEpoch(ctx context.Context, epoch int64) error {
	ahead := []string{w.Store.Clusters.Key(w.key)}
	_, err := w.Store.Update(ctx, "pod subnets known", ahead, func(v *store.View) error {
		v.Fence(w.owner.Fence())
		row, err := w.Store.Clusters.In(v, w.key)
		if err != nil || !row.Exists() || row.Value.SubnetsEpoch >= epoch {
			return err
		}
		row.Value.SubnetsEpoch = epoch
		return w.Store.Clusters.Put(v, w.key, row.Value)
	})
	return err
}
