package health

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Firewall is what was found of the machine's packet filters.
type Firewall struct {
	// UFW tells that ufw is enabled, UFWRules are its rules (/etc/ufw/user.rules).
	UFW      bool
	UFWRules string
	// Firewalld tells that firewalld runs, and Zones are the files of its zones.
	Firewalld bool
	Zones     string
	// IPTables is what iptables-save prints, NFT what `nft list ruleset` does; "" without the tool.
	IPTables, NFT string
}

// podInterface is what the pods of our own network are attached to.
const podInterface = "cni0"

// opening is one thing that a firewall must let through: the expression finds the rule that does,
// and the command makes it.
type opening struct{ rule, command string }

// firewallOpen: a firewall that drops what nobody has allowed cuts the API server off from kubelet,
// and pods from everybody. It holds up no join, since networks differ: the commands are told.
func firewallOpen(e Evidence) Condition {
	if !e.Firewall.OK() {
		return e.Firewall.missing()
	}
	name, commands := e.Firewall.Value.closed()
	if len(commands) == 0 {
		return holds()
	}
	return fails(OwnerMachine, "Closed", fmt.Sprintf("%s drops what the node needs (kubelet's port "+
		"10250, NodePorts, what pods send and get); run: %s; or set network.firewall to ignore",
		name, strings.Join(commands, "; ")))
}

// closed returns the firewall that drops something, and the commands that let it through.
func (f Firewall) closed() (string, []string) {
	switch {
	case f.UFW:
		return "ufw", missing(f.UFWRules, []opening{
			{`allow (?:any|tcp) 10250 `, "ufw allow 10250/tcp"},
			{`allow (?:any|tcp) 30000:32767 `, "ufw allow 30000:32767/tcp"},
			{`(?m)### allow .* in_` + podInterface, "ufw allow in on " + podInterface},
			{`route:allow .* in_` + podInterface, "ufw route allow in on " + podInterface},
			{`route:allow .* out_` + podInterface, "ufw route allow out on " + podInterface},
		})
	case f.Firewalld:
		commands := missing(f.Zones, []opening{
			{`port="10250"|port protocol="tcp" port="10250"`,
				"firewall-cmd --permanent --add-port=10250/tcp"},
			{`30000-32767`, "firewall-cmd --permanent --add-port=30000-32767/tcp"},
			{`interface name="` + podInterface + `"`,
				"firewall-cmd --permanent --zone=trusted --add-interface=" + podInterface},
		})
		if len(commands) > 0 {
			commands = append(commands, "firewall-cmd --reload")
		}
		return "firewalld", commands
	}
	if commands := f.iptablesClosed(); len(commands) > 0 {
		return "a policy of iptables", commands
	}
	return "a policy of nftables", f.nftClosed()
}

// missing are the commands for what no rule lets through.
func missing(rules string, openings []opening) []string {
	var commands []string
	for _, o := range openings {
		if !regexp.MustCompile(o.rule).MatchString(rules) {
			commands = append(commands, o.command)
		}
	}
	return commands
}

// iptablesClosed is for chains of iptables whose policy is DROP.
func (f Firewall) iptablesClosed() []string {
	_, filter, _ := strings.Cut(f.IPTables, "*filter\n")
	filter, _, _ = strings.Cut(filter, "COMMIT")
	var commands []string
	if strings.Contains(filter, ":INPUT DROP") {
		commands = missing(filter, []opening{
			{`--dport 10250 .*-j ACCEPT`, "iptables -I INPUT -p tcp --dport 10250 -j ACCEPT"},
			{`-A INPUT -i ` + podInterface + ` .*-j ACCEPT|-A INPUT -i ` + podInterface + ` -j ACCEPT`,
				"iptables -I INPUT -i " + podInterface + " -j ACCEPT"},
		})
	}
	if strings.Contains(filter, ":FORWARD DROP") {
		for _, flag := range []string{"-i", "-o"} {
			rule := flag + " " + podInterface
			commands = append(commands, missing(filter, []opening{{
				`-A FORWARD ` + rule + ` (?:.* )?-j ACCEPT`, "iptables -I FORWARD " + rule + " -j ACCEPT",
			}})...)
		}
	}
	return commands
}

// nftChain finds the base chains of nftables that filter, with their rules up to the brace.
var nftChain = regexp.MustCompile(
	`(?s)chain (\S+) \{\s*type filter hook (input|forward) [^\n]*policy drop;(.*?)\n\t\}`)

// nftClosed is for base chains of nftables whose policy is drop, but those of iptables.
func (f Firewall) nftClosed() []string {
	var commands []string
	for table := range strings.SplitSeq(f.NFT, "\ntable ") {
		name, rest, _ := strings.Cut(strings.TrimPrefix(table, "table "), " {")
		for _, chain := range nftChain.FindAllStringSubmatch(rest, -1) {
			if slices.Contains([]string{"INPUT", "FORWARD"}, chain[1]) {
				continue // iptables-nft's, which iptables-save shows
			}
			insert := "nft insert rule " + name + " " + chain[1] + " "
			openings := []opening{
				{`iifname "` + podInterface + `" accept`, insert + "iifname " + podInterface + " accept"},
			}
			if chain[2] == "input" {
				openings = append(openings, opening{`tcp dport .*10250.* accept`,
					insert + "tcp dport 10250 accept"})
			} else {
				openings = append(openings, opening{`oifname "` + podInterface + `" accept`,
					insert + "oifname " + podInterface + " accept"})
			}
			commands = append(commands, missing(chain[3], openings)...)
		}
	}
	return commands
}
