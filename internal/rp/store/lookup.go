package store

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Poll holds the data of a node that a conditional GET needs.
type Poll struct {
	UID, ETag string
	Identity  string
	Former    flexnode.Former
	// MachineKey is the thumbprint of the key of the node's machine, Boot its current boot.
	MachineKey, Boot string
	// Joining reports that there is a credential to join with: the first authenticated poll may
	// consume it.
	Joining bool
	// Second reports that another machine was seen beside the node's.
	Second bool
	// Diagnose reports that a diagnosis is requested of the agent.
	Diagnose bool
}

// below calls see with the values in a tree whose keys begin with a prefix and are after a key,
// until it returns false.
func below[T any](
	tree *btree.BTreeG[item[T]], prefix, after string, see func(key string, value T) bool,
) {
	tree.AscendGreaterOrEqual(item[T]{key: max(prefix, after)}, func(i item[T]) bool {
		return strings.HasPrefix(i.key, prefix) && (i.key <= after || see(i.key, i.value))
	})
}

// nodes is below for nodes.
func (x *Index) nodes(prefix, after string, see func(*entry) bool) {
	below(x.snapshot.Load().nodes, prefix, after, func(_ string, e *entry) bool {
		return e.nodeAt == 0 || see(e)
	})
}

// entry returns the data of a node, by its key; an empty entry if it does not exist.
func (x *Index) entry(nodeKey string) *entry {
	if e := x.snapshot.Load().node(nodeKey); e != nil {
		return e
	}
	return &entry{}
}

// Poll returns the data of a node, by its key.
func (x *Index) Poll(nodeKey string) (Poll, bool) {
	e := x.entry(nodeKey)
	if e.nodeAt == 0 {
		return Poll{}, false
	}
	wanted := e.wanted.Value()
	return Poll{
		UID: e.uid, Identity: e.identity, Former: e.former,
		ETag:       flexnode.ETag(e.uid, e.versions.assigned, e.versions.revision, wanted.Paused),
		MachineKey: e.machineKey, Boot: e.boot, Joining: wanted.Joining, Second: wanted.Second,
		Diagnose: wanted.Diagnose,
	}, true
}

// Node returns a node, by its key.
func (x *Index) Node(key string) (Row[flexnode.Node], error) {
	e := x.entry(key)
	return unpackRow[flexnode.Node](key, e.node, e.nodeAt)
}

// Status returns the status of a node, by its key.
func (x *Index) Status(key string) (Row[flexnode.Status], error) {
	e := x.entry(key)
	return unpackRow[flexnode.Status](key, e.status, e.statusAt)
}

// Applied returns the version that a node's agent reports to run, by the node's key; 0 for none, -1
// if its status cannot be read. It unpacks nothing.
func (x *Index) Applied(key string) int64 { return x.entry(key).versions.applied }

// Cluster returns a cluster, by its key. Its maps and pointers are shared and must not be changed.
func (x *Index) Cluster(key string) (Row[flexnode.Cluster], error) {
	found, ok := x.snapshot.Load().clusters.Get(item[clusterRow]{key: key})
	if !ok {
		return Row[flexnode.Cluster]{Key: key}, nil
	}
	return found.value.row, found.value.err
}

// Subscription returns the state of a subscription, by its id in lower case; "" if it is unknown.
func (x *Index) Subscription(id string) string {
	found, _ := x.snapshot.Load().subscriptions.Get(item[string]{key: id})
	return found.value
}

// Nodes yields the nodes after a key among those whose keys begin with a prefix, each as it is in
// the index when its turn comes, with an error if it cannot be read.
func (x *Index) Nodes(prefix, after string) iter.Seq2[Row[flexnode.Node], error] {
	return func(yield func(Row[flexnode.Node], error) bool) {
		for more := true; more; {
			more = false
			x.nodes(prefix, after, func(e *entry) bool {
				after, more = e.key, yield(unpackRow[flexnode.Node](e.key, e.node, e.nodeAt))
				return false
			})
		}
	}
}

// EachNode calls see with the key of each node whose key begins with a prefix, and whether it has a
// status. It unpacks nothing.
func (x *Index) EachNode(prefix string, see func(key string, hasStatus bool)) {
	x.nodes(prefix, "", func(e *entry) bool {
		see(e.key, e.statusAt != 0)
		return true
	})
}

// Clusters is Nodes for clusters, all at once.
func (x *Index) Clusters(prefix, after string) iter.Seq2[Row[flexnode.Cluster], error] {
	return func(yield func(Row[flexnode.Cluster], error) bool) {
		below(x.snapshot.Load().clusters, prefix, after, func(_ string, c clusterRow) bool {
			return yield(c.row, c.err)
		})
	}
}

// Stale returns the keys of up to limit nodes of a cluster, Failed or not, that were not rendered
// with these facts. It leaves out nodes for which that has failed with the present version of the
// cluster.
func (x *Index) Stale(clusterKey, facts string, limit int) []string {
	cluster, err := x.Cluster(clusterKey)
	if err != nil {
		return nil
	}
	tried := triedWith(facts, cluster.Value.Properties.KubernetesVersion)
	var keys []string
	x.nodes(clusterKey+"/", "", func(e *entry) bool {
		if e.isStale(facts, tried) {
			keys = append(keys, e.key)
		}
		return len(keys) < limit
	})
	return keys
}

// IsStale reports whether Stale returns a node.
func (x *Index) IsStale(nodeKey, facts string) bool {
	cluster, err := x.Cluster(flexnode.ClusterOf(nodeKey))
	tried := triedWith(facts, cluster.Value.Properties.KubernetesVersion)
	return err == nil && x.entry(nodeKey).isStale(facts, tried)
}

func (e *entry) isStale(facts, tried string) bool {
	return e.nodeAt != 0 && e.facts.Value() != facts && e.facts.Value() != tried
}

// Identified returns the keys of a cluster's nodes with a present or former identity that has an
// ending, in any case. It unpacks no row.
func (x *Index) Identified(clusterKey, ending string) []string {
	var keys []string
	ends := func(identity string) bool {
		at := len(identity) - len(ending)
		return at >= 0 && strings.EqualFold(identity[at:], ending)
	}
	x.nodes(clusterKey+"/", "", func(e *entry) bool {
		if ends(e.identity) || slices.ContainsFunc(e.former.All(), ends) {
			keys = append(keys, e.key)
		}
		return true
	})
	return keys
}

// Used counts the nodes of a subscription, those with a credential to join with, its clusters, and
// the bytes of its nodes.
type Used struct{ Nodes, Tokens, Clusters, Bytes int }

// Used returns the counts of a subscription, by its id in lower case, and the revision they
// include.
func (x *Index) Used(subscription string) (Used, int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.snapshot.Load()
	var used Used
	below(s.clusters, subscription+"/", "", func(string, clusterRow) bool {
		used.Clusters++
		return true
	})
	used.Nodes = x.tally.used[[2]string{subscription, allNodes}]
	used.Tokens = x.tally.used[[2]string{subscription, joiningNodes}]
	used.Bytes = x.tally.used[[2]string{subscription, nodeBytes}]
	return used, s.revision
}

// Unsettled reports whether a cluster has a node for which Admit may have something to do.
func (x *Index) Unsettled(cluster string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tally.used[[2]string{cluster, unsettledNodes}] > 0
}

// Counts returns the number of nodes by state and by status of their Ready condition ("": unknown).
func (x *Index) Counts() map[[2]string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.tally.states)
}
