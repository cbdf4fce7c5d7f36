package host

import (
	"slices"
	"strings"
)

// iptablesChain is a chain of the table filter, changed by iptables and kept in nf_tables.
type iptablesChain struct {
	nftChain
	tool string
}

// iptablesChain returns a chain of a tool such as ip6tables-nft.
func (h *Host) iptablesChain(tool, name string) iptablesChain {
	family, _, _ := strings.Cut(tool, "tables")
	return iptablesChain{nftChain{h, family, "filter", name}, tool}
}

// iptablesOf reports whether a chain of nf_tables belongs to iptables, and returns its tool.
func iptablesOf(f Filter) (tool string, ok bool) {
	return f.Family + "tables-nft", f.Family != "inet" && f.Table == "filter" &&
		f.Name == strings.ToUpper(f.Hook)
}

func (c iptablesChain) opening(r rule) [][]string { return [][]string{c.command("-I", r)} }

// closing names the whole rule, so that no other is removed.
func (c iptablesChain) closing(r rule) ([][]string, error) {
	return [][]string{c.command("-D", r)}, nil
}

func (c iptablesChain) command(verb string, r rule) []string {
	return slices.Concat([]string{c.tool, "-w", verb, c.name}, r.iptables(),
		[]string{"-m", "comment", "--comment", r.comment(), "-j", "ACCEPT"})
}

func (r rule) iptables() []string {
	switch {
	case r.how == "tcp", r.how == "udp":
		return []string{"-p", r.how, "-m", "multiport", "--dports", r.ports(":")}
	case r.how == "from":
		return []string{"-i", r.what}
	case r.how == "to":
		return []string{"-o", r.what}
	default:
		return []string{"-m", "conntrack", "--ctstate", "DNAT"}
	}
}
