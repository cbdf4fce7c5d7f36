package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// subnetsInterval is the time between recordings of the Nodes' pod subnets.
	subnetsInterval = 10 * time.Minute
	// subnetsPause collects deleted Nodes, so that they are recorded together.
	subnetsPause = 10 * time.Second
	// freedPause collects deleted nodes, so that their subnets are freed together.
	freedPause = time.Second
	// nodesPause is the time between attempts while not all Nodes are known.
	nodesPause = 200 * time.Millisecond
)

// noteSubnets updates the rows of pod subnets: a subnet is a node's as long as its flexNodeConfig
// or its Node has it. A Node has a subnet without a row after a restore from a backup, and when a
// registration whose machines were released is made again.
func (w *worker) noteSubnets(ctx context.Context, s *session) (time.Time, error) {
	cluster, err := w.Index.Cluster(w.key)
	if err != nil || !cluster.Exists() || cluster.Value.Properties.PodCIDR == "" ||
		cluster.Value.Deleting() {
		return noTime, err
	}
	if !s.nodesKnown.Load() {
		return time.Now().Add(nodesPause), nil
	}
	epoch, err := w.Store.ReadEpoch(ctx)
	rows, _, err2 := w.Store.PodCIDRs.List(ctx, w.key+"/")
	if err := errors.Join(err, err2); err != nil {
		return noTime, err
	}
	moves := w.subnetMoves(w.subnetsOfNodes(s, cluster.Value), rows, cluster.Value)
	if err := w.moveSubnets(ctx, moves, cluster.Value); err != nil {
		return noTime, err
	}
	// They are known in this epoch: new ones may be assigned.
	err = w.editCluster(ctx, "pod subnets known", func(c *flexnode.Cluster) bool {
		if c.SubnetsEpoch >= epoch || !c.SamePool(cluster.Value) {
			return false
		}
		c.SubnetsEpoch = epoch
		return true
	})
	return time.Now().Add(subnetsInterval), err
}

// subnetMove is the move of a pod subnet between nodes; "" is no node.
type subnetMove struct{ from, to string }

// subnetMoves returns the rows of pod subnets to change, by key. of has the nodes whose Nodes have
// each subnet: of several, the first whose flexNodeConfig has it too gets it, else the first by
// name. It logs a warning for Nodes that have the pod subnet of another node.
func (w *worker) subnetMoves(
	of map[string][]string, rows []store.Row[string], c flexnode.Cluster,
) map[string]subnetMove {
	moves, owners := map[string]subnetMove{}, map[string]string{}
	for slot := range of {
		owners[slot] = ""
	}
	for _, row := range rows {
		owners[row.Key] = row.Value
	}
	for slot, was := range owners {
		nodes, owner := of[slot], was
		if !slices.Contains(nodes, was) && !w.isChosen(was, slot, c) {
			owner = ""
			if len(nodes) > 0 {
				owner = nodes[max(0, slices.IndexFunc(nodes, func(node string) bool {
					return w.isChosen(node, slot, c)
				}))]
			}
			moves[slot] = subnetMove{was, owner}
		}
		for _, node := range nodes {
			if node != owner {
				w.log.Warn("a Node has the pod subnet of another node", "node", node, "of", owner,
					"subnet", slot)
			}
		}
	}
	return moves
}

// subnetsOfNodes returns the nodes whose Nodes have each pod subnet, in order, by key of its row.
// The nodes are the keys that the flexNodeConfigs of the Nodes have, or would have. Subnets that
// the cluster has allocated to a node with a configured subnet are not used.
func (w *worker) subnetsOfNodes(s *session, c flexnode.Cluster) map[string][]string {
	of := map[string][]string{}
	for _, o := range s.nodes.List() {
		n, ok := o.(*seenNode)
		if !ok || n.subnets == "" {
			continue
		}
		key := w.key + "/" + n.name
		if node, err := w.Index.Node(key); !n.configured && err == nil &&
			node.Value.Chosen.PodCIDR != "" {
			continue
		}
		for subnet := range strings.SplitSeq(n.subnets, ",") {
			for _, slot := range flexnode.Overlapped(w.key, c.Properties.PodCIDR,
				c.Properties.NodeCIDRMask, subnet) {
				of[slot] = append(of[slot], key)
			}
		}
	}
	for slot, nodes := range of {
		slices.Sort(nodes)
		of[slot] = slices.Compact(nodes)
	}
	return of
}

// isChosen reports whether a node has a pod subnet of its cluster, by the index.
func (w *worker) isChosen(nodeKey, slot string, c flexnode.Cluster) bool {
	node, err := w.Index.Node(nodeKey)
	return err != nil || chose(node.Value, w.key, slot, c)
}

func chose(n flexnode.Node, cluster, slot string, c flexnode.Cluster) bool {
	return flexnode.SlotOf(cluster, c.Properties.PodCIDR, n.Chosen.PodCIDR) == slot
}

// moveSubnets writes the owners of pod subnets, each in one change: no other node can get a subnet
// between two owners. A node that was given a subnet meanwhile keeps it.
func (w *worker) moveSubnets(
	ctx context.Context, moves map[string]subnetMove, c flexnode.Cluster,
) error {
	s := w.Store
	_, err := s.UpdateEach(ctx, slices.Sorted(maps.Keys(moves)), store.Each{
		What: "pod subnets noted",
		Ahead: func(slot string) []string {
			return []string{s.PodCIDRs.Key(slot), s.Nodes.Key(moves[slot].from)}
		},
		One: func(v *store.View, slot string) error {
			v.Fence(w.owner.Fence())
			move := moves[slot]
			node := s.Nodes.Row(v, move.from)
			if s.PodCIDRs.Row(v, slot).Value != move.from ||
				move.from != "" && chose(node.Value, w.key, slot, c) {
				return nil
			}
			if move.to == "" {
				s.PodCIDRs.Delete(v, slot)
				return nil
			}
			return s.PodCIDRs.Put(v, slot, move.to)
		},
	})
	return err
}
