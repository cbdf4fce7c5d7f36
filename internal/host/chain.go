package host

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// families are the two rule sets of iptables.
var families = [...]string{"iptables", "ip6tables"}

// findChains lists chains with the prefix, as "iptables nat CNI-1234", without other CNI networks'.
func (l linux) findChains(ctx context.Context, prefix string) ([]string, error) {
	var found []string
	for _, family := range families {
		rules, err := l.saveRules(ctx, family)
		if err != nil {
			return nil, err
		}
		for _, chain := range matchingChains(rules, prefix) {
			found = append(found, family+" "+chain)
		}
	}
	return found, nil
}

// savedTable is a table in the output of iptables-save; its rules are without "-A".
type savedTable struct {
	name          string
	chains, rules []string
}

func parseRules(rules string) []savedTable {
	var tables []savedTable
	var last *savedTable
	for line := range strings.Lines(rules) {
		if line = strings.TrimSpace(line); len(line) < 2 {
			continue
		}
		switch {
		case line[0] == '*':
			tables = append(tables, savedTable{name: line[1:]})
			last = &tables[len(tables)-1]
		case line[0] == ':' && last != nil:
			name, _, _ := strings.Cut(line[1:], " ")
			last.chains = append(last.chains, name)
		case strings.HasPrefix(line, "-A ") && last != nil:
			last.rules = append(last.rules, line[len("-A "):])
		}
	}
	return tables
}

func matchingChains(rules, prefix string) []string {
	var found []string
	for _, t := range parseRules(rules) {
		foreign := foreignChains(t.rules)
		for _, name := range t.chains {
			if strings.HasPrefix(name, prefix) && !foreign[name] {
				found = append(found, t.name+" "+name)
			}
		}
	}
	return found
}

// saveRules returns the output of iptables-save. A missing tool is an error: rules stay without it.
func (l linux) saveRules(ctx context.Context, family string) (string, error) {
	out, err := l.run(ctx, "", family+"-save")
	if err != nil && strings.Contains(family, "6") {
		return "", nil // a kernel without IPv6
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the rules of %s: %w", family, err)
	}
	return string(out), nil
}

// clearChains removes chains, after the rules that jump to them, in one transaction for a family.
func (l linux) clearChains(ctx context.Context, prefix string, found []string) error {
	var errs []error
	for _, family := range families {
		gone := make(map[string]bool)
		for _, f := range found {
			if rest, ok := strings.CutPrefix(f, family+" "); ok {
				gone[rest] = true
			}
		}
		if len(gone) == 0 {
			continue
		}
		rules, err := l.saveRules(ctx, family)
		if input := removal(rules, gone); input != "" {
			_, err = l.run(ctx, input, family+"-restore", "--noflush", "--wait")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removal returns the input for iptables-restore --noflush that removes the chains in gone ("table
// chain") and the rules that jump to them.
func removal(rules string, gone map[string]bool) string {
	var b strings.Builder
	for _, t := range parseRules(rules) {
		goes := func(chain string) bool { return gone[t.name+" "+chain] }
		flushes, jumps, deletions := "", "", ""
		for _, c := range t.chains {
			if goes(c) {
				flushes += "-F " + c + "\n"
				deletions += "-X " + c + "\n"
			}
		}
		for _, rule := range t.rules {
			if chain, rest, _ := strings.Cut(rule, " "); !goes(chain) && goes(target(rest)) {
				jumps += "-D " + rule + "\n"
			}
		}
		if flushes != "" {
			b.WriteString("*" + t.name + "\n" + flushes + jumps + deletions + "COMMIT\n")
		}
	}
	return b.String()
}

// target returns the chain that a rule jumps to. It is the last jump: a comment may hold anything.
func target(rule string) string {
	i := strings.LastIndex(" "+rule, " -j ")
	if i < 0 {
		return ""
	}
	name, _, _ := strings.Cut(rule[i+len("-j "):], " ")
	return name
}

const ownNetwork = "aks-flex-node" // the name of our network in the rules of the CNI plugins

// networkName matches the network that a rule of a CNI plugin belongs to. Its comment is `name:
// "podman" id: "..."` (containernetworking/plugins, pkg/utils).
var networkName = regexp.MustCompile(`name: \\?"([^"\\]+)\\?"`)

// firewallChains are the chains of the firewall plugin, which our network does not use.
var firewallChains = []string{
	"CNI-FORWARD", "CNI-ADMIN", "CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2",
}

// foreignChains returns the chains of one table that other CNI networks, such as podman's, use:
// those whose rules or jumps name another network, and the shared chains connected with them.
func foreignChains(rules []string) map[string]bool {
	named, links := map[string]string{}, map[string][]string{}
	for _, rule := range rules {
		chain, rest, _ := strings.Cut(rule, " ")
		to := target(rest)
		links[chain], links[to] = append(links[chain], to), append(links[to], chain)
		name := networkName.FindStringSubmatch(rest)
		if name == nil {
			continue
		}
		for _, c := range []string{chain, to} {
			// Such a chain belongs to one container, and so to one network.
			if strings.HasPrefix(c, "CNI-") && !strings.HasPrefix(c, "CNI-HOSTPORT-") &&
				!slices.Contains(firewallChains, c) {
				named[c] = name[1]
			}
		}
	}
	foreign := map[string]bool{}
	var mark func(chain string)
	mark = func(chain string) {
		if foreign[chain] || named[chain] == ownNetwork || !strings.HasPrefix(chain, "CNI-") {
			return
		}
		foreign[chain] = true
		for _, next := range links[chain] {
			mark(next)
		}
	}
	for _, chain := range firewallChains {
		foreign[chain] = true
	}
	for chain, name := range named {
		if name != ownNetwork {
			mark(chain)
		}
	}
	return foreign
}
