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

// MetadataTable is the nftables table that keeps pods from the machine's metadata service.
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
	if p.config.Network.Metadata == config.MetadataAllow {
		return
	}
	resolver := ""
	if p.facts.MetadataResolver {
		resolver = metadataResolver
	}
	rules := header + fill(metadataRules, "{{Table}}", MetadataTable, "{{Resolver}}", resolver)
	p.owe([]string{metadataUnit}, state.NewFile(metadataFile, 0o644, rules))
	p.unit(metadataUnit, 0o644, fill(metadataService, "{{File}}", metadataFile))
	p.add(state.Table{Name: MetadataTable, File: metadataFile, Rules: countRules(rules)})
	p.run(metadataUnit)
}

// countRules counts the rules of a ruleset with one rule per line.
func countRules(ruleset string) int {
	count := 0
	for line := range strings.Lines(ruleset) {
		line = strings.TrimSpace(line)
		switch word, _, _ := strings.Cut(line, " "); word {
		case "", "#", "table", "delete", "chain", "type", "}":
		default:
			count++
		}
	}
	return count
}
