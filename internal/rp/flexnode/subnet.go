package flexnode

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Slots returns the number of subnets of mask bits in a pool; 0 when it is none.
func Slots(pool string, mask int) int {
	network, err := netip.ParsePrefix(pool)
	if err != nil || mask < network.Bits() || mask > network.Addr().BitLen() {
		return 0
	}
	return 1 << min(mask-network.Bits(), 32)
}

// Slot returns the n-th subnet to try for a node: the key of its row and the subnet. The first one
// follows from the node's name, so that a node that comes back mostly gets its previous subnet. ok
// is false if the pool has no n-th subnet.
func Slot(cluster, node, pool string, mask, n int) (key, subnet string, ok bool) {
	count := Slots(pool, mask)
	if n < 0 || n >= count {
		return "", "", false
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(node)) // it never fails
	number := (hash.Sum64()%uint64(count) + uint64(n)) % uint64(count)
	return slotKey(cluster, number), subnetOf(netip.MustParsePrefix(pool), mask, number), true
}

// SlotOf returns the key of the row of a pod subnet; "" if it is not one of that pool.
func SlotOf(cluster, pool, subnet string) string {
	network, err := netip.ParsePrefix(pool)
	own, err2 := netip.ParsePrefix(subnet)
	if err != nil || err2 != nil || own.Bits() < network.Bits() || !network.Contains(own.Addr()) {
		return ""
	}
	return slotKey(cluster, numberOf(network, own.Addr(), own.Bits()))
}

// wideBits is the max number of bits by which a node's subnet may be wider than a pool's.
const wideBits = 4

// Overlapped returns the keys of the rows of all pod subnets in a pool that a subnet of any size
// overlaps; none if that is too wide to be a node's.
func Overlapped(cluster, pool string, mask int, subnet string) []string {
	network, err := netip.ParsePrefix(pool)
	own, err2 := netip.ParsePrefix(subnet)
	if err != nil || err2 != nil || !network.Overlaps(own) || mask-own.Bits() > wideBits {
		return nil
	}
	if own.Bits() < network.Bits() {
		own = network
	}
	first := numberOf(network, own.Masked().Addr(), mask)
	var keys []string
	for n := range uint64(1) << max(0, mask-own.Bits()) {
		keys = append(keys, slotKey(cluster, first+n))
	}
	return keys
}

// numberOf returns the number of the subnet with mask bits of a network that has an address.
func numberOf(network netip.Prefix, addr netip.Addr, mask int) uint64 {
	number := uint64(0)
	bytes := addr.AsSlice()
	for bit := network.Bits(); bit < mask; bit++ {
		number = number<<1 | uint64(bytes[bit/8]>>(7-bit%8)&1)
	}
	return number
}

func slotKey(cluster string, number uint64) string {
	return fmt.Sprintf("%s/%08x", cluster, number)
}

// subnetOf returns the n-th subnet with mask bits of a network.
func subnetOf(network netip.Prefix, mask int, n uint64) string {
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

// PodCIDROf returns the pod subnet in the labels of a Node; "" for none.
func PodCIDROf(labels map[string]string) string {
	value := labels[config.PodCIDRLabel]
	bits := strings.LastIndexByte(value, '-') + 1
	if bits == 0 {
		return ""
	}
	p, err := netip.ParsePrefix(strings.ReplaceAll(value[:bits-1], "-", ":") + "/" + value[bits:])
	if err != nil {
		return ""
	}
	return p.String()
}
