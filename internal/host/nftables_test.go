package host

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// realFirewall gives the test a network namespace of its own, with the kernel's real firewall. Its
// thread ends with it.
func realFirewall(t *testing.T, tools ...string) *Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces; make test, run as root, has it")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	return &Host{
		Root: t.TempDir(), Kernel: linux{}, Log: slog.New(slog.DiscardHandler),
	}
}

func tool(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// openAll opens and closes a firewall, whose rules are the same again afterwards.
func openAll(t *testing.T, h *Host, show func() string, rules map[string][]string) {
	t.Helper()
	before := show()
	found, err := h.Firewalls()
	if err != nil {
		t.Fatal(err)
	}
	var openings []state.Opening
	for _, f := range found {
		for _, rule := range rules[f.Hook] {
			openings = append(openings, opening(f.Name, rule))
		}
	}
	if len(openings) < 6 {
		t.Fatalf("only %v are found", found)
	}
	for _, o := range openings {
		set(t, h, state.Change{To: o})
		set(t, h, state.Change{To: o}) // again changes nothing
	}
	if got := strings.Count(show(), ourComment+"-"); got != len(openings) {
		t.Errorf("there are %d rules of ours, want %d:\n%s", got, len(openings), show())
	}
	if still, err := h.Firewalls(); err != nil || cmp.Diff(found, still) != "" {
		t.Errorf("the firewalls are %v now, %v", still, err)
	}
	for _, o := range openings {
		o.Open = false
		set(t, h, state.Change{To: o, Undo: true})
	}
	if diff := cmp.Diff(before, show()); diff != "" {
		t.Errorf("the rules are not as before (-before +after):\n%s", diff)
	}
}

func nodeRules() map[string][]string {
	return map[string][]string{
		"input":   {"in tcp 10250,30000-32767", "in udp 30000-32767", "in from cni0"},
		"forward": {"forward translated", "forward from cni0", "forward to cni0"},
		"output":  {"out to cni0"},
	}
}

func TestNFT(t *testing.T) {
	h := realFirewall(t, "nft")
	tool(t, "nft", `
		table inet guard {
			chain input {
				type filter hook input priority 0; policy drop;
				ct state established,related accept
				iif lo accept
				tcp dport 22 accept comment "aks-flex-node is welcome"
			}
			chain forward { type filter hook forward priority 0; policy drop; }
			chain output { type filter hook output priority 0; policy accept; }
		}
		table ip6 last {
			chain in {
				type filter hook input priority 5; policy accept;
				tcp dport 22 accept
				counter reject with icmpv6 type admin-prohibited
			}
		}
		table ip calm {
			chain in { type filter hook input priority 5; policy accept; tcp dport 23 drop; }
			chain nat { type nat hook prerouting priority 0; policy accept; }
			chain plain { drop; }
		}`)
	found, err := h.Firewalls()
	want := []state.Firewall{
		{Name: "nft inet guard input", Hook: "input"},
		{Name: "nft inet guard forward", Hook: "forward"},
		{Name: "nft ip6 last in", Hook: "input"},
	}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("%v, found (-want +got):\n%s", err, diff)
	}
	openAll(t, h, func() string { return tool(t, "nft", "list", "ruleset") }, nodeRules())
	for _, gone := range [][3]string{{"inet", "guard", "gone"}, {"ip", "gone", "x"}} {
		if f, err := h.filter(gone[0], gone[1], gone[2]); err != nil || f.Name != "" {
			t.Errorf("a chain that is not there is %+v, %v", f, err)
		}
	}
	if f, err := h.filter("ip", "calm", "plain"); err != nil || f.Name != "" {
		t.Errorf("a chain without a hook is %+v, %v", f, err)
	}
}

func TestIPTablesNFT(t *testing.T) {
	h := realFirewall(t, "iptables-nft", "ip6tables-nft")
	for _, tables := range []string{"iptables-nft", "ip6tables-nft"} {
		tool(t, tables, "-A", "INPUT", "-i", "lo", "-j", "ACCEPT")
		tool(t, tables, "-P", "INPUT", "DROP")
		tool(t, tables, "-A", "OUTPUT", "-j", "REJECT")
		tool(t, tables, "-P", "FORWARD", "DROP")
	}
	openAll(t, h, func() string {
		return tool(t, "iptables-nft", "-S") + tool(t, "ip6tables-nft", "-S")
	}, nodeRules())
}

// Where there are no rules at all, none are found, and none are made by asking.
func TestNoFirewall(t *testing.T) {
	h := realFirewall(t)
	if found, err := h.Firewalls(); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// A kernel without nf_tables has no chains: it answers as to any subsystem that it does not have.
func TestKernelWithoutNFTables(t *testing.T) {
	realFirewall(t)
	const none = 200
	err := readNFT(none, func(*nftables.Conn) error {
		t.Error("something is read nevertheless")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, err := range []error{unix.EPERM, unix.ENOENT, unix.ENOMEM} {
		if except(err, noSubsystem...) == nil {
			t.Errorf("%v counts as a kernel without nf_tables", err)
		}
	}
}

// What changes while it is read is read again, whatever came of it, but not forever.
func TestUndisturbed(t *testing.T) {
	realFirewall(t, "nft")
	for _, changes := range []int{0, 1, 3, 1000} {
		reads := 0
		err := readNFT(unix.NFNL_SUBSYS_NFTABLES, func(*nftables.Conn) error {
			if reads++; reads <= changes {
				tool(t, "nft", "add table ip t; delete table ip t")
				return errors.New("disturbed")
			}
			return nil
		})
		if want := changes < 1000; (err == nil) != want || want && reads != changes+1 {
			t.Errorf("%d changes: %d reads, %v", changes, reads, err)
		}
	}
}

// Programs keep with their rules what they like: only what nft would read is a comment.
func TestUserComment(t *testing.T) {
	for data, want := range map[string]string{
		"":                        "",
		"\x00":                    "",
		"\x00\x03hi\x00":          "hi",
		"\x01\x01x\x00\x03hi\x00": "hi",
		"\x00\x7fshort":           "",
		"netbird-input":           "",

		"\x01\xfe" + strings.Repeat("x", 254): "",
	} {
		if got := userComment([]byte(data)); got != want {
			t.Errorf("%q has the comment %q, want %q", data, got, want)
		}
	}
}

// Rules of any kind can be read. They drop only some packets, so that their chain does not drop.
func TestForeignRules(t *testing.T) {
	h := realFirewall(t, "nft", "iptables-nft")
	tool(t, "nft", `table inet guard {
		set s { type ipv4_addr; flags dynamic,timeout; timeout 1m; }
		counter c { }
		quota q { over 10 mbytes }
		chain in { type filter hook input priority 0; policy accept; }
	}`)
	made := 0
	add := func(argv ...string) {
		if exec.Command(argv[0], argv[1:]...).Run() != nil {
			return // it is not known here
		}
		made++
		found, err := h.Kernel.Filters()
		rules := 0
		for _, f := range found {
			rules += len(f.Rules)
			if f.Drops {
				t.Errorf("after %q, %s %s drops", argv, f.Table, f.Name)
			}
		}
		if err != nil || rules != made {
			t.Fatalf("after %q: %d rules, want %d (%v)", argv, rules, made, err)
		}
	}
	for _, r := range []string{
		"tcp dport { 1, 2, 5-9 } drop", "update @s { ip saddr limit rate 1/second } drop",
		"ct state new,invalid drop", "ct count over 5 drop", "limit rate 5/second drop",
		`ip saddr 10.0.0.1 counter name "c" drop`, `ip saddr 10.0.0.1 quota name "q" drop`,
		`ip saddr 10.0.0.1 log prefix "x" group 5 drop`, "tcp flags & (syn | ack) == syn drop",
		"fib saddr . iif oif missing drop", "meta hour \"10:00\"-\"11:00\" drop", "notrack",
		"socket transparent 1 drop", `osf name "Linux" drop`, "tcp option maxseg size 500 drop",
		"exthdr frag exists drop", "numgen random mod 10 < 5 drop", "rt classid 5 drop",
		"jhash ip saddr mod 2 0 drop", "ipsec in reqid 1 drop", "tcp dport vmap { 1: drop }",
	} {
		add("nft", "add rule inet guard in "+r)
	}
	for _, r := range []string{
		"-m addrtype --dst-type LOCAL", "-m conntrack --ctproto tcp --ctorigdstport 5",
		"-m limit --limit 5/s", "-p tcp -m multiport --dports 5,6", "-m recent --set",
	} {
		add(append([]string{"iptables-nft", "-A", "INPUT", "-j", "DROP"}, strings.Fields(r)...)...)
	}
	if made < 10 {
		t.Errorf("only %d rules were made", made)
	}
}

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
