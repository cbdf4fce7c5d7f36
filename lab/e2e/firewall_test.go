package e2e

import (
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/lab"
)

// guard is a typical firewall with nftables.
const guard = `table inet guard
flush table inet guard
table inet guard {
	chain input {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
		iif lo accept
		meta l4proto { icmp, icmpv6 } accept
		tcp dport 22 accept
	}
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established,related accept
	}
}
`

// iptablesGuard is the same firewall with iptables.
const iptablesGuard = `set -e
for t in iptables ip6tables; do
	$t -F INPUT; $t -F FORWARD
	$t -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
	$t -A INPUT -i lo -j ACCEPT
	$t -A INPUT -p tcp --dport 22 -j ACCEPT
	$t -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
	$t -P INPUT DROP
	$t -P FORWARD DROP
done
iptables -A INPUT -p icmp -j ACCEPT
ip6tables -A INPUT -p icmpv6 -j ACCEPT
`

// wall is a firewall of a machine's owner, with the commands to enable and reload it.
type wall struct {
	packages   []string
	on, reload [][]string
	// keeps reports whether a reload keeps our rules.
	keeps bool
	// rules are the commands that list its rules.
	rules [][]string
	// partly reports whether the owner must allow some traffic through the machine; pass are the
	// documented commands for that, if they leave nothing that is compared.
	partly bool
	pass   [][]string
}

// Behind a firewall that drops unmatched packets, a managed node runs pods with access to Services,
// DNS and pods of other nodes, and logs, exec and node ports work. After the owner's reload it is
// still open or opened again, and in the end the rules are unchanged. The short form omits
// firewalld, which neither Debian nor Ubuntu installs by default.
func TestFirewall(t *testing.T) {
	t.Parallel()
	nft, iptables := [][]string{{"nft", "-f", "/etc/guard.nft"}}, [][]string{{"sh", "/etc/guard.sh"}}
	with, all := []string{"nftables", "ufw"}, []string{"nft", "list", "ruleset"}
	for name, w := range map[string]wall{
		"fw-nft": {packages: with, on: nft, reload: nft, rules: [][]string{all}},
		"fw-iptables": {
			packages: with, on: iptables, reload: iptables, rules: [][]string{all},
		},
		"fw-ufw": {
			packages: with, on: [][]string{{"ufw", "allow", "22/tcp"}, {"ufw", "--force", "enable"}},
			reload: [][]string{{"ufw", "reload"}}, keeps: true, partly: true,
			rules: [][]string{all, {"grep", "-h", "tuple", "/etc/ufw/user.rules", "/etc/ufw/user6.rules"}},
		},
		"fw-firewalld": {
			packages: []string{"nftables", "firewalld"},
			on:       [][]string{{"systemctl", "start", "firewalld"}, {"firewall-cmd", "--state"}},
			reload:   [][]string{{"firewall-cmd", "--reload"}}, keeps: true,
			partly: true, pass: toPods(),
			rules: [][]string{ // the order of its chains changes
				{"firewall-cmd", "--list-all-zones"},
				{"firewall-cmd", "--permanent", "--list-all-zones"},
			},
		},
	} {
		if name == "fw-firewalld" && !long() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := bareMachine(t, name, w.packages...)
			configure(t, m, lab.Newest, func(c map[string]any) {
				c["network"] = map[string]any{"firewall": "manage"}
			})
			w.behind(t, m)
		})
	}
}

func (w wall) behind(t *testing.T, m lab.Machine) {
	for path, text := range map[string]string{
		"/etc/guard.nft": guard, "/etc/guard.sh": iptablesGuard,
	} {
		if err := bench.Write(m, path, 0o644, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	// The first rule of a node's programs creates these chains, which remain, empty.
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, table := range []string{"filter", "nat", "mangle"} {
			command(t, m, tool, "-t", table, "-P", "OUTPUT", "ACCEPT")
		}
		command(t, m, tool, "-P", "INPUT", "ACCEPT")
		command(t, m, tool, "-P", "FORWARD", "ACCEPT")
		command(t, m, tool, "-t", "nat", "-P", "PREROUTING", "ACCEPT")
		command(t, m, tool, "-t", "nat", "-P", "POSTROUTING", "ACCEPT")
	}
	commands(t, m, w.on)
	before := w.show(t, m)
	must(t, m, "bootstrap")
	if !answers(m, "10250") {
		t.Error("kubelet's port is closed")
	}
	if _, err := bench.CheckPod(t.Context(), m.Name, m.Name); err != nil {
		t.Error(err)
	}
	commands(t, m, w.pass)
	if !w.partly || len(w.pass) > 0 {
		connected(t, m)
	}
	if status := must(t, m, "status"); strings.Contains(status, "FirewallOpen") {
		t.Errorf("the status tells of the firewall:\n%s", status)
	}

	commands(t, m, w.reload)
	if answers(m, "10250") != w.keeps {
		t.Errorf("after the owner's reload, kubelet's port answers: %v", !w.keeps)
	}
	if found := drift(t, m); (len(found) == 0) != w.keeps {
		t.Errorf("after the owner's reload, the drift is %+v", found)
	}
	must(t, m, "drift", "--repair")
	if !answers(m, "10250") {
		t.Error("kubelet's port is closed after the repair")
	}
	if left := drift(t, m); len(left) != 0 {
		t.Errorf("after the repair there is still drift: %+v", left)
	}
	must(t, m, "unbootstrap", "--yes")
	if diff := cmp.Diff(before, w.show(t, m)); diff != "" {
		t.Errorf("the rules are not as before (-before +after):\n%s", diff)
	}
}

// toPods returns the commands of docs/how-to/network.md with which firewalld's owner allows traffic
// to pods of other nodes.
func toPods() [][]string {
	const policy = "--policy=to-pods"
	list := [][]string{
		{"--new-policy=to-pods"}, {policy, "--add-ingress-zone=ANY"},
		{policy, "--add-egress-zone=trusted"},
		{policy, "--add-rich-rule=rule family=ipv4 source address=" + lab.PodCIDR + " accept"},
		{policy, "--add-rich-rule=rule family=ipv6 source address=" + lab.PodCIDR6 + " accept"},
	}
	for i, options := range list {
		list[i] = append([]string{"firewall-cmd", "--permanent"}, options...)
	}
	return append(list, []string{"firewall-cmd", "--reload"})
}

var counted = regexp.MustCompile(`packets \d+ bytes \d+`)

// show returns all rules of a machine without counters.
func (w wall) show(t *testing.T, m lab.Machine) string {
	t.Helper()
	text := ""
	for _, argv := range w.rules {
		text += counted.ReplaceAllString(command(t, m, argv...), "")
	}
	return text
}

func commands(t *testing.T, m lab.Machine, list [][]string) {
	t.Helper()
	for _, argv := range list {
		command(t, m, argv...)
	}
}

// command runs a command on a machine, which must succeed.
func command(t *testing.T, m lab.Machine, argv ...string) string {
	t.Helper()
	out, code := inside(t, m, argv...)
	if code != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(argv, " "), code, out)
	}
	return out
}

// answers reports whether a port of a machine accepts connections from outside.
func answers(m lab.Machine, port string) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(m.IP, port), 3*time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
