package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// subnets returns the nodes that have pod subnets, by number of the subnet.
func (w *world) subnets() map[string]string {
	rows, _, err := w.store.PodCIDRs.List(context.Background(), factory+"/")
	must(0, err)
	of := map[string]string{}
	for _, row := range rows {
		of[flexnode.LastOf(row.Key)] = flexnode.LastOf(row.Value)
	}
	return of
}

// pool gives the cluster a network for pod subnets.
func (w *world) pool(network string, mask int) {
	edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
		c.Properties.PodCIDR, c.Properties.NodeCIDRMask = network, mask
	})
	pass(2 * time.Second)
}

// joinWith adds a Node that was configured with a pod subnet, or was given some by the cluster.
func (c *fakeCluster) joinWith(name, podCIDR string, flex bool, podCIDRs ...string) {
	node := flexNode(name)
	if !flex {
		delete(node.Labels, managedLabel)
	}
	if podCIDR != "" {
		node.Labels[config.PodCIDRLabel] = config.ShowPodCIDR(podCIDR)
	}
	node.Spec.PodCIDRs = podCIDRs
	c.add(node)
}

// After a restore, pod subnets of Nodes that the backup does not have are taken before new ones are
// assigned, and are free again once their Nodes are gone (M26).
func TestPodSubnetsAfterARestore(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.pool("10.200.0.0/20", 24)
		equal(t, "before, the epoch", w.cluster(factory).SubnetsEpoch, 1)
		w.put(factoryID, "kept", flexnode.Desired{})
		before := w.subnets()
		kept := w.node(factory + "/kept").Chosen.PodCIDR
		c.joinWith("kept", kept, true, "10.200.9.0/24")
		w.disown(factory)
		c.joinWith("unknown", "10.200.1.0/24", true, "10.200.8.0/24")
		c.joinWith("allocated", "", true, "10.200.2.0/24", "fd00::/64")
		c.joinWith("wide", "", false, "10.200.4.0/23")
		c.joinWith("elsewhere", "10.201.1.0/24", true)
		w.restore()
		c.Down.Store(true)
		w.own(factory)
		pass(time.Minute)
		equal(t, "the cluster does not answer, and its Nodes are known in epoch",
			w.cluster(factory).SubnetsEpoch, 1)
		c.Down.Store(false)
		pass(time.Minute)
		want := map[string]string{"00000001": "unknown", "00000002": "allocated",
			"00000004": "wide", "00000005": "wide"}
		for number, node := range before {
			want[number] = node
		}
		equal(t, "all of them", w.subnets(), want)
		equal(t, "the Nodes are known, and the epoch of that", w.cluster(factory).SubnetsEpoch, 2)
		for _, name := range []string{"unknown", "allocated", "wide", "elsewhere", "kept"} {
			c.leave(name)
		}
		pass(time.Minute)
		equal(t, "after they have left", w.subnets(), before)
	})
}

// The machines of a deleted registration keep their pod subnets, which are taken when the cluster
// is registered again, in the first epoch as in any other.
func TestPodSubnetsOfReleasedMachines(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.pool("10.200.0.0/20", 24)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		before := w.subnets()
		c.joinWith("edge-1", w.node(factory+"/edge-1").Chosen.PodCIDR, true)
		w.markDeletion(false, time.Now())
		pass(time.Minute)
		if w.cluster(factory).UID != "" || len(w.subnets()) != 0 {
			t.Fatalf("it is not deleted: %+v, %v", w.cluster(factory), w.subnets())
		}
		c.Down.Store(true)
		w.register(factoryID, c)
		w.pool("10.200.0.0/20", 24)
		w.own(factory)
		pass(time.Minute)
		equal(t, "Nodes that were not seen, known in epoch", w.cluster(factory).SubnetsEpoch, 0)
		c.Down.Store(false)
		pass(time.Minute)
		equal(t, "its pod subnets", w.subnets(), before)
		equal(t, "their number", len(before), 1)
		equal(t, "the Nodes were seen, and are known in epoch", w.cluster(factory).SubnetsEpoch, 1)
	})
}

// Of several Nodes with one pod subnet, the same one always gets it: first its present owner, then
// the one whose flexNodeConfig has it, then the first by name. It changes owner with the Node.
func TestNodesWithOnePodSubnet(t *testing.T) {
	for range 10 { // the order of Nodes is another one each time
		inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
			w.pool("10.200.0.0/20", 24)
			want := func(node string) {
				t.Helper()
				pass(subnetsInterval + time.Minute)
				equal(t, "whose the pod subnet is", w.subnets()["00000003"], node)
			}
			c.joinWith("d", "10.200.3.0/24", true)
			want("d")
			for _, name := range []string{"c", "b", "a"} {
				c.joinWith(name, "10.200.3.0/24", true)
			}
			want("d")
			c.leave("d")
			want("a")
			edit(w, w.store.Nodes, factory+"/c", func(n *flexnode.Node) {
				n.ID, n.UID, n.Chosen.PodCIDR = factoryID+"/flexNodeConfig/c", "c", "10.200.3.0/24"
			})
			c.leave("a")
			want("c")
			c.leave("c")
			c.leave("b")
			want("c") // its flexNodeConfig still exists
		})
	}
}

// The subnets of a pool count as known only if those of its Nodes were compared with it: it may be
// changed meanwhile.
func TestPodSubnetsOfAPoolThatWasJustChanged(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		w.pool("10.200.0.0/20", 24)
		equal(t, "before, known in epoch", w.cluster(factory).SubnetsEpoch, 1)
		w.owned[factory].(*fakeOwner).invalid.Store(true) // the worker itself does nothing
		worker := w.manager.working[factory]
		w.memory.Before(func(c storetest.Call) error {
			if c.Op != "scan" || c.Keys[0] != w.store.PodCIDRs.Key(factory+"/") {
				return nil
			}
			w.memory.Before(nil)
			edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
				c.Properties.PodCIDR, c.SubnetsEpoch = "10.201.0.0/20", 0
			})
			return nil
		})
		must(worker.noteSubnets(t.Context(), worker.session.Load()))
		equal(t, "the new pool is known in epoch", w.cluster(factory).SubnetsEpoch, 0)
	})
}

// A pod subnet of a node that is created while the rows are read is not freed.
func TestAPodSubnetThatWasJustGivenOut(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		w.pool("10.200.0.0/20", 24)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		before := w.subnets()
		unused := map[string]subnetMove{}
		for number, name := range before {
			unused[factory+"/"+number] = subnetMove{from: factory + "/" + name}
		}
		worker := w.manager.working[factory]
		must(0, worker.moveSubnets(context.Background(), unused, w.cluster(factory)))
		equal(t, "its pod subnets", w.subnets(), before)
		equal(t, "their number", len(before), 1)
	})
}
