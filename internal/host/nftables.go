package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// nftChain is a base chain of nftables.
type nftChain struct {
	host                *Host
	family, table, name string
}

func (c nftChain) observe(_ context.Context, r rule) (open, drops bool, err error) {
	f, err := c.host.Kernel.Filter(c.family, c.table, c.name)
	return f.has(r), f.Drops, err
}

// has tells whether the chain has our rule.
func (f Filter) has(r rule) bool { return slices.ContainsFunc(f.Rules, r.isOurs) }

func (r rule) isOurs(is FilterRule) bool { return is.Accepts && is.Comment == r.comment() }

// opening inserts a rule before all others.
func (c nftChain) opening(r rule) [][]string {
	text := strings.Join([]string{
		"insert rule", c.family, c.table, c.name, r.nft(), "accept comment", r.comment(),
	}, " ")
	return [][]string{{"nft", text}}
}

// nft is what the rule matches, as nft(8) writes it.
func (r rule) nft() string {
	switch {
	case r.how == "tcp", r.how == "udp":
		return r.how + " dport { " + strings.ReplaceAll(r.what, ",", ", ") + " }"
	case r.how == "from":
		return `iifname "` + r.what + `"`
	case r.how == "to":
		return `oifname "` + r.what + `"`
	default:
		return "ct status dnat"
	}
}

func (c nftChain) closing(r rule) ([][]string, error) {
	f, err := c.host.Kernel.Filter(c.family, c.table, c.name)
	var commands [][]string
	for _, is := range f.Rules {
		if r.isOurs(is) {
			commands = append(commands, []string{"nft", fmt.Sprintf("delete rule %s %s %s handle %d",
				c.family, c.table, c.name, is.Handle)})
		}
	}
	return commands, err
}
