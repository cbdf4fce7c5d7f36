package host

import (
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// realFirewall gives the test a network namespace of its own, with the kernel's real firewall. Its
// thread ends with it.
func realFirewall(t *testing.T, tools ...string) *Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
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
	found, err := h.Firewalls(t.Context())
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
		set(t, h, state.Change{To: o}) // once more changes nothing
	}
	if got := strings.Count(show(), ourComment+"-"); got != len(openings) {
		t.Errorf("there are %d rules of ours, want %d:\n%s", got, len(openings), show())
	}
	if still, err := h.Firewalls(t.Context()); err != nil || cmp.Diff(found, still) != "" {
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
	found, err := h.Firewalls(t.Context())
	want := []Firewall{
		{"nft inet guard input", "input"}, {"nft inet guard forward", "forward"},
		{"nft ip6 last in", "input"},
	}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("%v, found (-want +got):\n%s", err, diff)
	}
	openAll(t, h, func() string { return tool(t, "nft", "list", "ruleset") }, nodeRules())
	for _, gone := range [][3]string{{"inet", "guard", "gone"}, {"ip", "gone", "x"}} {
		if f, err := h.Kernel.Filter(gone[0], gone[1], gone[2]); err != nil || f.Name != "" {
			t.Errorf("a chain that is not there is %+v, %v", f, err)
		}
	}
	if f, err := h.Kernel.Filter("ip", "calm", "plain"); err != nil || f.Name != "" {
		t.Errorf("a chain without a hook is %+v, %v", f, err)
	}
	if _, err := h.Kernel.Filter("bridge", "x", "x"); err == nil {
		t.Error("an unknown family was asked for")
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

func TestIPTablesLegacy(t *testing.T) {
	h := realFirewall(t, "iptables-legacy", "ip6tables-legacy")
	for _, tables := range []string{"iptables-legacy", "ip6tables-legacy"} {
		if _, err := exec.Command(tables, "-S").Output(); err != nil {
			t.Skip("this kernel has no " + tables)
		}
		tool(t, tables, "-P", "INPUT", "DROP")
		tool(t, tables, "-P", "FORWARD", "DROP")
	}
	write(t, h, "/proc/net/ip_tables_names", "filter\n")
	write(t, h, "/proc/net/ip6_tables_names", "filter\n")
	openAll(t, h, func() string {
		return tool(t, "iptables-legacy", "-S") + tool(t, "ip6tables-legacy", "-S")
	}, nodeRules())
}

// Where there are no rules at all, none are found, and none are made by asking.
func TestNoFirewall(t *testing.T) {
	h := realFirewall(t)
	if found, err := h.Firewalls(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// A kernel without nf_tables has no chains: it answers as to any subsystem that it does not have.
func TestKernelWithoutNFTables(t *testing.T) {
	realFirewall(t)
	const none = 200
	flags := map[string]int{"a dump": unix.NLM_F_DUMP, "one": 0}
	for name, flag := range flags {
		found, err := askNetfilter(none<<8|unix.NFT_MSG_GETCHAIN, flag, unix.NFPROTO_INET)
		if err != nil || len(found) > 0 {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
	}
	for _, err := range []error{unix.EPERM, unix.ENOENT, unix.ENOMEM} {
		if except(err, noSubsystem...) == nil {
			t.Errorf("%v counts as a kernel without nf_tables", err)
		}
	}
}
