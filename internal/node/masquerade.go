package node

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// masqueradeChain holds the rules by which pods leave the cluster's network.
const masqueradeChain = "AKS-FLEX-NODE"

//go:embed masquerade.service
var masqueradeService string

// family is IPv4 or IPv6, with what differs between the two.
type family struct {
	ipv6             bool
	only             state.Only
	suffix, iptables string
	multicast        string
	pods             placeholder
}

var families = [...]family{
	{false, OwnNetwork4, "", "iptables", "224.0.0.0/4", thisPods4},
	{true, OwnNetwork6, "6", "ip6tables", "ff00::/8", thisPods6},
}

func isIPv6(cidr string) bool { return strings.Contains(cidr, ":") }

// masquerade gives pods the machine's address where they leave the network in which their own is
// known. The bridge plugin cannot: it spares this node's subnet only. Without such a network it is
// left to the plugin (conflist).
func masquerade(p *part) {
	if len(p.config.CNI.NonMasqueradeCIDRs) == 0 {
		return
	}
	p.only = OwnNetwork
	p.add(state.Residue{Kind: state.Chains, Match: masqueradeChain})
	for _, f := range families {
		unit := "aks-flex-node-masquerade" + f.suffix + ".service"
		file := OptDir + "/masquerade" + f.suffix + ".rules"
		p.only = f.only
		p.owe([]string{unit},
			state.NewFile(file, 0o644, masqueradeRules(f, p.config.CNI.NonMasqueradeCIDRs)))
		p.unit(unit, 0o644, fill(masqueradeService, map[string]string{
			"IPTables": f.iptables, "Chain": masqueradeChain, "File": file,
		}))
		p.run(unit)
	}
}

// masqueradeRules is the input of iptables-restore --noflush, which empties a chain that it
// declares. Only what comes from this node's pods is concerned.
func masqueradeRules(f family, direct []string) string {
	var b strings.Builder
	rule := func(format string, args ...any) {
		fmt.Fprintf(&b, "-A "+masqueradeChain+" "+format+"\n", args...)
	}
	b.WriteString(header + "*nat\n:" + masqueradeChain + " - [0:0]\n")
	rule("! -s %s -j RETURN", f.pods)
	for _, cidr := range direct {
		if isIPv6(cidr) == f.ipv6 {
			rule("-d %s -j RETURN", cidr)
		}
	}
	rule("-m comment --comment own -d %s -j RETURN", f.pods)
	rule("-d %s -j RETURN", f.multicast)
	rule("-j MASQUERADE --random-fully")
	jump := "-A POSTROUTING -m comment --comment \"aks-flex-node: pods\" -j " + masqueradeChain
	b.WriteString(jump + "\nCOMMIT\n")
	return b.String()
}
