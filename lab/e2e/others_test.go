package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// podmanChains are the chains that podman 3.4 creates for a container with a port of the machine.
const podmanChains = `*nat
:CNI-feed - [0:0]
:CNI-DN-feed - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \"podman\" id: \"a\"" -j CNI-feed
-A CNI-feed -d 10.88.0.0/16 -m comment --comment "name: \"podman\" id: \"a\"" -j ACCEPT
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"podman\" id: \"a\"" -j CNI-DN-feed
-A CNI-DN-feed -p tcp --dport 8080 -j DNAT --to-destination 10.88.0.2:80
COMMIT
`

// othersAreLeftAlone checks that other programs' objects with names like ours remain when the node
// leaves: podman's chains, and a network namespace with a running process.
func othersAreLeftAlone(t *testing.T, m lab.Machine) {
	if err := bench.Write(m, "/root/podman.rules", 0o600, []byte(podmanChains)); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"iptables-restore --noflush /root/podman.rules",
		"ip netns add cni-podman",
		"systemd-run --unit=lives ip netns exec cni-podman sleep 900",
		"sleep 1; systemctl is-active lives",
	} {
		if out, code := inside(t, m, "bash", "-c", command); code != 0 {
			t.Fatalf("%s: %s", command, out)
		}
	}
	must(t, m, "unbootstrap", "--yes")
	const show = "iptables-save -t nat; ip netns list; systemctl is-active lives"
	out, _ := inside(t, m, "bash", "-c", show)
	for _, want := range []string{
		"-j CNI-feed", "-j CNI-DN-feed", "cni-podman", "\nactive",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is gone:\n%s", want, out)
		}
	}
}

// ownersSysctls sets kernel parameters of the machine's owner that conflict with a node's.
func ownersSysctls(t *testing.T, m lab.Machine) {
	t.Helper()
	conf := "net.ipv4.ip_forward = 0\nkernel.panic_on_oops = 0\n"
	if err := bench.Write(m, "/etc/sysctl.conf", 0o644, []byte(conf)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(m.Root, "etc/sysctl.d/99-sysctl.conf")
	if err := os.Symlink("../sysctl.conf", link); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}

// natRules waits until our chain exists, or does not, as wanted. A reload that is passed on to our
// unit goes on after systemctl has ended.
func natRules(t *testing.T, m lab.Machine, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("the rules of pods: %t", want), func() bool {
		out, _ := inside(t, m, "iptables-save", "-t", "nat")
		return want == (strings.Contains(out, "-A POSTROUTING") && strings.Contains(out, "AKS-FLEX-NODE"))
	})
}

// A policy of DROP is reported before the join, with the commands that open the firewall; once it
// is open, it is no longer reported.
func TestFirewallIsTold(t *testing.T) {
	t.Parallel()
	m := machine(t, "firewall-1")
	close := "iptables -P FORWARD DROP; iptables -P INPUT DROP; " +
		"iptables -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT; " +
		"iptables -A INPUT -i lo -j ACCEPT"
	if out, code := inside(t, m, "bash", "-c", close); code != 0 {
		t.Fatal(out)
	}
	out := must(t, m, "bootstrap")
	lines := strings.Join(strings.Fields(out), " ") // joins the terminal's lines
	told := regexp.MustCompile(`iptables-nft -w -I .*? -j ACCEPT`).FindAllString(lines, -1)
	if len(told) != 6 {
		t.Fatalf("bootstrap says\n%s", out)
	}
	if well, err := bench.CheckNode(t.Context(), m); err == nil || len(well) > 0 {
		t.Errorf("from outside the closed node is well: %q", well)
	}
	commands := strings.Join(told, "; ")
	if out, code := inside(t, m, "bash", "-ec", commands); code != 0 {
		t.Fatalf("%s: %s", commands, out)
	}
	configure(t, m, lab.Newest, func(c map[string]any) {
		node, _ := c["node"].(map[string]any)
		node["maxPods"] = 42
	})
	if out := must(t, m, "bootstrap"); strings.Contains(out, "network.firewall") {
		t.Errorf("an open firewall is reported:\n%s", out)
	}
	if well, err := bench.CheckNode(t.Context(), m); err != nil {
		t.Errorf("from outside only this is well: %q: %v", well, err)
	}
}
