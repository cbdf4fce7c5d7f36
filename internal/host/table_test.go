package host

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// ownNetworks gives the test a network namespace of its own, with no rule in it. Its thread ends
// with it.
func ownNetworks(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// plantTables makes tables with a chain, a rule and a set in each, as kube-proxy does.
func plantTables(t *testing.T, tables ...nftables.Table) {
	t.Helper()
	conn := &nftables.Conn{}
	for i := range tables {
		table := conn.AddTable(&tables[i])
		chain := conn.AddChain(&nftables.Chain{
			Name: "nat-output", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
		})
		services := conn.AddChain(&nftables.Chain{Name: "services", Table: table})
		set := &nftables.Set{Name: "cluster-ips", Table: table, KeyType: nftables.TypeIPAddr}
		if err := conn.AddSet(set, nil); err != nil {
			t.Fatal(err)
		}
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Verdict{Kind: expr.VerdictJump, Chain: services.Name},
		}})
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// Tables of a name are found in every family and removed with all that is in them; others, and
// those that were there before, remain.
func TestTables(t *testing.T) {
	ownNetworks(t)
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
	const v4, v6 = nftables.TableFamilyIPv4, nftables.TableFamilyIPv6
	plantTables(t, nftables.Table{Name: "kube-proxy", Family: v4},
		nftables.Table{Name: "kube-proxy", Family: v6}, nftables.Table{Name: "owner", Family: v4},
		nftables.Table{Name: "kube-proxy-2", Family: nftables.TableFamilyINet})
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
	left, err := listTables(&nftables.Conn{})
	if err != nil || len(left) != 2 {
		t.Errorf("%d other tables are left (%v), want 2", len(left), err)
	}
}
