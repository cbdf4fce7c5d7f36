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

// Slot is the n-th place to try for a node's pod subnet: the key of its row and the subnet. The
// first one is where the node's name points to, so that a node that comes back mostly gets the
// subnet that it had. False: there are only n places.
func Slot(cluster, node, pool string, mask, n int) (key, subnet string, ok bool) {
	count := Slots(pool, mask)
	if n < 0 || n >= count {
		return "", "", false
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(node)) // it never fails
	number := (hash.Sum64()%uint64(count) + uint64(n)) % uint64(count)
	network := netip.MustParsePrefix(pool)
	return slotKey(cluster, number), subnetOf(network, mask, number), true
}

// SlotOf is the key of the row of a pod subnet; "" when it is not one of that pool.
func SlotOf(cluster, pool, subnet string) string {
	network, err := netip.ParsePrefix(pool)
	own, err2 := netip.ParsePrefix(subnet)
	if err != nil || err2 != nil || own.Bits() < network.Bits() || !network.Contains(own.Addr()) {
		return ""
	}
	return slotKey(cluster, numberOf(network, own.Addr(), own.Bits()))
}

// wideBits bounds how much wider than the subnets of a pool a node's may be.
const wideBits = 4

// Overlapped are the keys of the rows of those pod subnets of a pool that a subnet overlaps, of
// whatever size that is. One that is too wide to be a node's overlaps none.
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

// numberOf is the number of the subnet with mask bits of a network that an address is in.
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

// subnetOf is the n-th subnet with mask bits of a network.
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

// PodCIDROf is the pod subnet in the labels of a Node; "" for none.
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
