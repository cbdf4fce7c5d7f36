package host

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// plantTables makes tables with chains, a rule and a set in each, as kube-proxy does.
func plantTables(t *testing.T, tables ...string) {
	t.Helper()
	for _, name := range tables {
		tool(t, "nft", "table "+name+` {
			set cluster-ips { type ipv4_addr; elements = { 10.0.0.1 }; }
			chain services { tcp dport 443 drop; }
			chain nat-output { type nat hook output priority -100; jump services; }
		}`)
	}
}

// Tables of a name are found in every family and removed with all that is in them; others, and
// those that were there before, remain.
func TestTables(t *testing.T) {
	realFirewall(t, "nft")
	r := state.Residue{Kind: state.Tables, Match: "kube-proxy"}
	find := func(want ...string) []string {
		t.Helper()
		found, err := linux{}.Find(t.Context(), r)
		if err != nil || !slices.Equal(found, want) {
			t.Fatalf("found %q (%v), want %q", found, err, want)
		}
		return found
	}
	find()
	plantTables(t, "ip kube-proxy", "ip6 kube-proxy", "ip owner", "inet kube-proxy-2")
	found := find("ip kube-proxy", "ip6 kube-proxy")
	if err := (linux{}).Clear(t.Context(), r, found[:1]); err != nil {
		t.Fatal(err)
	}
	found = find("ip6 kube-proxy")
	for range 2 { // the second time they have gone
		if err := (linux{}).Clear(t.Context(), r, found); err != nil {
			t.Fatal(err)
		}
	}
	find()
	left, err := listTables()
	want := []table{{unix.NFPROTO_IPV4, "owner"}, {unix.NFPROTO_INET, "kube-proxy-2"}}
	if err != nil || len(left) != 2 || !slices.Contains(left, want[0]) ||
		!slices.Contains(left, want[1]) {
		t.Errorf("%v are left (%v), want %v", left, err, want)
	}
}

// A transaction of which one part cannot be done does nothing, and says why.
func TestTablesTogether(t *testing.T) {
	realFirewall(t, "nft")
	plantTables(t, "ip kube-proxy")
	deletion := func(name string) *nl.NetlinkRequest {
		return netfilterRequest(nfTables|unix.NFT_MSG_DELTABLE, unix.NLM_F_ACK, unix.NFPROTO_IPV4,
			attribute(unix.NFTA_TABLE_NAME, name))
	}
	for name, changes := range map[string][]*nl.NetlinkRequest{
		"the second is missing": {deletion("kube-proxy"), deletion("none")},
		"the first is missing":  {deletion("none"), deletion("kube-proxy")},
	} {
		if err := changeNFT(changes); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %v", name, err)
		}
		if found, err := (linux{}).findTables(t.Context(), "kube-proxy"); err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v are left", name, err, found)
		}
	}
}
