package rp

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// allocate reserves a pod subnet for a node, in the transaction that writes the node. It looks where the node's name points to, so that a
// node that comes back mostly gets the subnet that it had.
func (s *Server) allocate(ctx context.Context, txn *store.Txn, cluster, node, pool string, mask int) (string, error) {
	prefix, err := netip.ParsePrefix(pool)
	if err != nil || mask < prefix.Bits() {
		return "", fmt.Errorf("internal error: the pod network %s/%d of cluster %s", pool, mask, cluster)
	}
	count := uint64(1) << min(mask-prefix.Bits(), 32)
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(node)) // it never fails
	start := hash.Sum64() % count
	const probes = 8
	for i := range min(uint64(probes), count) {
		number := (start + i) % count
		row, err := s.Store.PodCIDRs.Get(ctx, slot(cluster, number))
		if err != nil {
			return "", err
		}
		if !row.Exists() {
			s.Store.PodCIDRs.Put(txn, row, node)
			return subnet(prefix, mask, number), nil
		}
	}
	return s.allocateAnywhere(ctx, txn, cluster, node, prefix, mask, start, count)
}

// allocateAnywhere looks through the whole pool, which is rather full.
func (s *Server) allocateAnywhere(ctx context.Context, txn *store.Txn, cluster, node string, prefix netip.Prefix, mask int, start, count uint64) (string, error) {
	rows, err := s.Store.PodCIDRs.List(ctx, cluster+"/")
	if err != nil {
		return "", err
	}
	taken := make(map[string]bool, len(rows))
	for _, r := range rows {
		taken[r.Key] = true
	}
	for i := range count {
		number := (start + i) % count
		if key := slot(cluster, number); !taken[key] {
			s.Store.PodCIDRs.Put(txn, store.Row[string]{Key: key}, node)
			return subnet(prefix, mask, number), nil
		}
	}
	return "", arm.Errorf(409, "PodCIDRExhausted", "All %d pod subnets of the cluster are in use. Give the cluster a larger podCidr or delete flexNodeConfigs that are not needed.", count)
}

func slot(cluster string, number uint64) string { return fmt.Sprintf("%s/%08x", cluster, number) }

// subnet is the n-th subnet with mask bits of a network.
func subnet(network netip.Prefix, mask int, n uint64) string {
	bytes := network.Masked().Addr().AsSlice()
	for bit := mask - 1; bit >= 0 && n > 0; bit-- {
		if n&1 == 1 {
			bytes[bit/8] |= 1 << (7 - bit%8)
		}
		n >>= 1
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, mask).String()
}

// free gives a node's pod subnet back.
func (s *Server) free(txn *store.Txn, cluster store.Cluster, clusterKey string, n store.Node) {
	network, err := netip.ParsePrefix(cluster.Properties.PodCIDR)
	own, err2 := netip.ParsePrefix(n.Resolved.PodCIDR)
	if err != nil || err2 != nil {
		return
	}
	number := uint64(0)
	bytes := own.Addr().AsSlice()
	for bit := network.Bits(); bit < own.Bits(); bit++ {
		number = number<<1 | uint64(bytes[bit/8]>>(7-bit%8)&1)
	}
	s.Store.PodCIDRs.Clear(txn, slot(clusterKey, number))
}
