package node

import (
	_ "embed"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Openings returns the openings that a node and its pods need in a firewall. Those for the bridge
// of our own pod network apply only while there is no other network.
func Openings(f state.Firewall) state.Desired {
	const ports = "tcp 10250,30000-32767"
	const udp, from, to = "in udp 30000-32767", "from " + bridge, "to " + bridge
	var list state.Desired
	add := func(only state.Only, rules ...string) {
		for _, rule := range rules {
			opening := state.Opening{Firewall: f.Name, Rule: rule, Open: true}
			list = append(list, state.Item{Resource: opening, Only: only})
		}
	}
	kind, _, _ := strings.Cut(f.Name, " ")
	switch {
	case kind == "ufw":
		add("", "in "+ports, udp)
		add(OwnNetwork, "in "+from, "forward "+from, "forward "+to)
	case kind == "firewalld":
		add("", "in tcp 10250", "in tcp 30000-32767", udp)
		add(OwnNetwork, "in "+from)
	case f.Hook == "input":
		add("", "in "+ports, udp)
		add(OwnNetwork, "in "+from)
	case f.Hook == "forward":
		add("", "forward translated")
		add(OwnNetwork, "forward "+from, "forward "+to)
	case f.Hook == "output":
		add(OwnNetwork, "out "+to)
	}
	return list
}

// MetadataTable is the nftables table that keeps pods from the machine's metadata service. It also
// limits their segments to the machine's MTU.
const MetadataTable = "inet aks-flex-node"

// MetadataAddress is the address of most clouds' metadata services; some also resolve names there.
const MetadataAddress = "169.254.169.254"

const (
	metadataUnit = "aks-flex-node-metadata.service"
	metadataFile = OptDir + "/metadata.nft"
	// metadataResolver lets pods resolve names at the address of the metadata service.
	metadataResolver = "\t\tip daddr " + MetadataAddress +
		" meta l4proto { tcp, udp } th dport 53 return\n"
)

//go:embed metadata.nft
var metadataRules string

//go:embed metadata.service
var metadataService string

// metadata rejects packets from pods to the metadata services of clouds, which answer any request
// with tokens of the machine's identity.
func metadata(p *part) {
	first := ""
	switch {
	case p.config.Network.Metadata == config.MetadataAllow:
		first = "\t\treturn\n"
	case p.facts.MetadataResolver:
		first = metadataResolver
	}
	rules := header + fill(metadataRules, "{{Table}}", MetadataTable, "{{First}}", first)
	p.owe([]string{metadataUnit}, state.NewFile(metadataFile, 0o644, rules))
	p.unit(metadataUnit, 0o644, fill(metadataService, "{{File}}", metadataFile))
	// The lines in its chains, except the chains' types, are rules.
	n := strings.Count(rules, "\n\t\t") - strings.Count(rules, "\n\t\ttype ")
	p.add(state.Table{Name: MetadataTable, File: metadataFile, Rules: n})
	p.run(metadataUnit)
}
