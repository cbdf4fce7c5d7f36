package host

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/nftables"
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
	var names []string
	for _, table := range left {
		names = append(names, tableName(table))
	}
	slices.Sort(names)
	if want := []string{"inet kube-proxy-2", "ip owner"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v are left (%v), want %v", names, err, want)
	}
}

// A transaction of which one part cannot be done does nothing, and says why.
func TestTablesTogether(t *testing.T) {
	realFirewall(t, "nft")
	plantTables(t, "ip kube-proxy")
	is := &nftables.Table{Name: "kube-proxy", Family: nftables.TableFamilyIPv4}
	none := &nftables.Table{Name: "none", Family: nftables.TableFamilyIPv4}
	for name, tables := range map[string][]*nftables.Table{
		"the second is missing": {is, none},
		"the first is missing":  {none, is},
	} {
		if err := deleteTables(tables); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %v", name, err)
		}
		if found, err := (linux{}).findTables(t.Context(), "kube-proxy"); err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v are left", name, err, found)
		}
	}
}
