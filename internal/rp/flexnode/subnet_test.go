package flexnode

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

func TestOverlapped(t *testing.T) {
	const v4, v6 = "10.200.0.0/16", "fd00:10::/48"
	for _, tt := range []struct {
		pool, subnet string
		mask         int
		want         string
	}{
		{v4, "10.200.3.0/24", 24, "3"},
		{v4, "10.200.255.0/24", 24, "ff"},
		{v4, "10.200.3.64/26", 24, "3"},
		{v4, "10.200.2.0/23", 24, "2 3"},
		{v4, "10.201.3.0/24", 24, ""},
		{v4, "10.200.0.0/16", 24, ""},
		{"10.200.0.0/22", "10.0.0.0/8", 24, ""},
		{"10.200.0.0/23", "10.200.0.0/22", 24, "0 1"},
		{v4, "fd00::/64", 24, ""},
		{v4, "nonsense", 24, ""},
		{v6, "fd00:10:0:7::/64", 64, "7"},
		{"", "10.200.3.0/24", 24, ""},
	} {
		var keys []string
		for _, key := range Overlapped("c", tt.pool, tt.mask, tt.subnet) {
			number := must(strconv.ParseUint(strings.TrimPrefix(key, "c/"), 16, 64))
			keys = append(keys, fmt.Sprintf("%x", number))
		}
		expect(t, tt.subnet+" in "+tt.pool, strings.Join(keys, " "), tt.want)
	}
	for n := range 64 {
		key, subnet, _ := Slot("c", "node", v4, 24, n)
		expect(t, subnet, Overlapped("c", v4, 24, subnet), []string{key})
	}
}

// A pod subnet can be read back from its label.
func TestPodCIDROf(t *testing.T) {
	of := func(value string) string {
		return PodCIDROf(map[string]string{config.PodCIDRLabel: value})
	}
	for _, subnet := range []string{"10.244.1.0/24", "fd00:10:244::/64"} {
		expect(t, "what is read back", of(config.ShowPodCIDR(subnet)), subnet)
	}
	for _, value := range []string{"", "-", "24", "10.244.1.0", "10.244.1.0-x", "a-b-24"} {
		expect(t, fmt.Sprintf("%q", value), of(value), "")
	}
}

func TestKeys(t *testing.T) {
	for key, want := range map[string][2]string{
		"s/g/c":   {"s/g/c", "c"},
		"s/g/c/n": {"s/g/c", "n"},
		"s":       {"s", "s"},
		"":        {"", ""},
	} {
		expect(t, key, [2]string{ClusterOf(key), LastOf(key)}, want)
	}
}

// The subnet of a node is kept, and requested once.
func TestSubnetStays(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	expect(t, "the subnet without a pool", w.node.Chosen.PodCIDR, "")
	w.pool("10.200.0.0/16", 24)
	expect(t, "a pool changed a node that no PUT has changed", w.put(Desired{}).Changed, false)
	w.put(pods(9))
	subnet := w.node.Chosen.PodCIDR
	has(t, "the subnet", subnet, "10.200.")
	has(t, "the configuration", w.config(w.last()), `"podCIDR":"`+subnet+`"`)
	w.put(pods(10))
	expect(t, "the subnet", w.node.Chosen.PodCIDR, subnet)
}

// Pods reach the network of the cluster's subnets with their own addresses, unless the operator has
// set these networks. A node that was rendered without them stays so.
func TestPodNetwork(t *testing.T) {
	w := newWorld(t)
	network := func() any { return in(w.whole(w.last(), Grants{}), "cni", directNetworks) }
	facts := someFacts()
	facts.DNSServiceIP = "fd00:96::a"
	w.reach(facts, "1.35.4")
	w.put(pods(9))
	w.pool("FD00:1::/48", 64)
	w.put(pods(9))
	w.put(pods(10))
	facts.DNSServiceIP = "fd00:96::b"
	w.reach(facts, "1.35.4")
	r := w.refresh()
	shows(t, "it is rendered again, without", "true <nil>", r != nil, network())
	w.remove()
	for _, most := range []int{9, 10} {
		w.put(pods(most))
		expect[any](t, fmt.Sprintf("maxPods %d", most), network(), []any{"fd00:1::/48"})
	}
	given := []any{"10.0.0.0/8"}
	w.defaults(object{"cni": object{directNetworks: given}})
	w.put(pods(11))
	expect[any](t, "the operator's", network(), given)
	w.defaults(nil)
	for _, none := range []string{"::ffff:10.0.0.0/112", ""} {
		w.pool(none, 64)
		expect(t, fmt.Sprintf("%q", none), w.parent.podNetwork(), "")
	}
}

// A node that could not be rendered before gets the network once it can be.
func TestPodNetworkOfANodeThatWaits(t *testing.T) {
	w := newWorld(t)
	w.unreached()
	w.pool("10.200.0.0/16", 24)
	w.put(Desired{})
	w.reach(someFacts(), "1.35.4")
	has(t, "its configuration", w.config(w.refresh()), `"nonMasqueradeCIDRs":["10.200.0.0/16"]`)
}
