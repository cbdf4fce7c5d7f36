package node

import (
	_ "embed"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// MetadataTable is the nftables table that keeps pods from the machine's metadata service.
const MetadataTable = "inet aks-flex-node"

// MetadataAddress is the address at which most clouds answer for a machine's identity, and some
// resolve names.
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
	rules := header + fill(metadataRules,
		map[string]string{"Table": MetadataTable, "Resolver": resolver})
	p.owe([]string{metadataUnit}, state.NewFile(metadataFile, 0o644, rules))
	p.unit(metadataUnit, 0o644, fill(metadataService, map[string]string{"File": metadataFile}))
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
