package node

import (
	_ "embed"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Firewall is a firewall of the machine's owner that stops what no rule accepts (host.Firewall).
type Firewall struct {
	Name string `json:"name"`
	// Hook is input, forward or output; "" is all of it.
	Hook string `json:"hook,omitempty"`
}

// Openings lists what a firewall must let pass to a node and its pods. What concerns the bridge of
// our own pod network is part of the node while there is no other network.
func Openings(f Firewall) state.Desired {
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

// openings has the owner's firewalls let a node's traffic pass; facts have them only if asked.
func openings(p *part) {
	for _, f := range p.facts.Firewalls {
		for _, item := range Openings(f) {
			p.put(item)
		}
	}
}

// MetadataTable is the nftables table that keeps pods from the machine's metadata service.
const MetadataTable = "inet aks-flex-node"

// MetadataAddress is where most clouds answer for a machine's identity, and some resolve names.
const MetadataAddress = "169.254.169.254"

const (
	metadataUnit = "aks-flex-node-metadata.service"
	metadataFile = OptDir + "/metadata.nft"
	// metadataResolver lets pods resolve names at an address that is the metadata service's too.
	metadataResolver = "\t\tip daddr " + MetadataAddress +
		" meta l4proto { tcp, udp } th dport 53 return\n"
)

//go:embed metadata.nft
var metadataRules string

//go:embed metadata.service
var metadataService string

// metadata rejects what pods send to the metadata services of clouds, which answer any
// request with tokens of the machine's identity.
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

// countRules counts the rules of a ruleset that has one rule a line.
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
