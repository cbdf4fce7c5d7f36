package node

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// masqueradeChain holds the rules by which pods leave the cluster's network.
const masqueradeChain = "AKS-FLEX-NODE"

//go:embed masquerade.service
var masqueradeService string

// family is IPv4 or IPv6, with what differs between the two.
type family struct {
	only             state.Only
	suffix, iptables string
	multicast        string
	pods             placeholder
	has              func(cidr string) bool
}

func families() [2]family {
	return [...]family{
		{OwnNetwork4, "", "iptables", "224.0.0.0/4", thisPods4, isIPv4},
		{OwnNetwork6, "6", "ip6tables", "ff00::/8", thisPods6, isIPv6},
	}
}

func isIPv4(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Addr().Is4()
}

func isIPv6(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && !p.Addr().Is4()
}

// masquerade gives pods the machine's address where they leave the network in which their own is
// known. The bridge plugin cannot: it spares this node's subnet only. Without such a network it is
// left to the plugin (conflist).
func masquerade(p *part) {
	if len(p.config.CNI.NonMasqueradeCIDRs) == 0 {
		return
	}
	p.put(state.Item{
		Resource: state.Residue{Kind: state.Chains, Match: masqueradeChain}, Only: OwnNetwork,
	})
	for _, f := range families() {
		unit := "aks-flex-node-masquerade" + f.suffix + ".service"
		file := OptDir + "/masquerade" + f.suffix + ".rules"
		rules := masqueradeRules(f, p.config.CNI.NonMasqueradeCIDRs)
		text := fill(masqueradeService, map[string]string{
			"IPTables": f.iptables, "Chain": masqueradeChain, "File": file,
		})
		for _, item := range []state.Item{
			{Resource: state.NewFile(file, 0o644, rules), Owes: []string{unit}},
			{
				Resource: state.NewFile(unitDir+"/"+unit, 0o644, text),
				Owes:     []string{state.DaemonReload, unit},
			},
			{Resource: state.Unit{Name: unit, Enabled: state.Enabled, Active: true}},
		} {
			item.Only = f.only
			p.put(item)
		}
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
		if f.has(cidr) {
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
