package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// iptablesOf reports whether an nf_tables chain is one of iptables, and by what it is changed.
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

// legacyChain is a chain of iptables-legacy, whose rules nothing but its own program tells.
type legacyChain struct{ iptablesChain }

func (c legacyChain) observe(ctx context.Context, r rule) (open, drops bool, err error) {
	rules, err := c.host.legacyTable(ctx, c.family)
	open = slices.ContainsFunc(strings.Split(rules, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "-A "+c.name+" ") &&
			strings.Contains(line, "--comment "+r.comment()+" -j ACCEPT")
	})
	return open, legacyDrops(rules, c.name), err
}

func legacyDrops(rules, chain string) bool {
	return strings.Contains("\n"+rules, "\n:"+chain+" DROP ")
}

func (h *Host) legacyFirewalls(ctx context.Context) ([]Firewall, error) {
	var found []Firewall
	for _, family := range []string{"ip", "ip6"} {
		rules, err := h.legacyTable(ctx, family)
		if err != nil {
			return found, err
		}
		for _, hook := range []string{"input", "forward", "output"} {
			if chain := strings.ToUpper(hook); legacyDrops(rules, chain) {
				found = append(found, Firewall{family + "tables-legacy " + chain, hook})
			}
		}
	}
	return found, nil
}

// legacyTable returns the rules of the table filter of iptables-legacy; "" without that table.
func (h *Host) legacyTable(ctx context.Context, family string) (string, error) {
	names, err := h.ReadFile("/proc/net/" + family + "_tables_names")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !hasLine(string(names), "filter") {
		return "", nil // to ask for the table would make it
	}
	if err != nil {
		return "", fmt.Errorf("cannot check whether iptables-legacy has rules: %w", err)
	}
	out, err := h.ask(ctx, toolLimit, family+"tables-legacy-save", "-t", "filter")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the program that made the rules is gone, and no other can change them
	}
	return string(out), err
}

func hasLine(text, line string) bool { return slices.Contains(strings.Split(text, "\n"), line) }
