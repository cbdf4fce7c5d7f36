package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// families are the two rule sets of iptables; a machine may have neither tool.
var families = [...]string{"iptables", "ip6tables"}

// findChains lists chains whose name has the prefix, as "iptables nat CNI-1234". Those of other CNI
// networks are left out.
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

// matchingChains lists the chains of a rule set as "nat CNI-1234".
func matchingChains(rules, prefix string) []string {
	var found, chains, appended []string
	table := ""
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table, chains, appended = line[1:], nil, nil
		case strings.HasPrefix(line, ":"+prefix):
			name, _, _ := strings.Cut(line[1:], " ")
			chains = append(chains, name)
		case strings.HasPrefix(line, "-A "):
			appended = append(appended, line)
		case line == "COMMIT":
			foreign := foreignChains(appended)
			for _, name := range chains {
				if !foreign[name] {
					found = append(found, table+" "+name)
				}
			}
		}
	}
	return found
}

// saveRules returns the rules as iptables-save prints them; none where the tool is missing.
func (l linux) saveRules(ctx context.Context, family string) (string, error) {
	out, err := l.run(ctx, "", family+"-save")
	if errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(family, "6") {
		return "", nil // or a kernel without IPv6
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the rules of %s: %w", family, err)
	}
	return string(out), nil
}

// clearChains removes chains, and before them the rules elsewhere that jump to them, in one
// transaction for each family.
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
		if err == nil {
			err = l.restoreRules(ctx, family, removal(rules, gone))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removal is the input of iptables-restore --noflush that removes the chains in gone ("table
// chain") and what jumps to them.
func removal(rules string, gone map[string]bool) string {
	var b strings.Builder
	var jumps, chains []string
	table := ""
	flush := func() {
		if len(chains) == 0 {
			return
		}
		b.WriteString("*" + table + "\n")
		for _, c := range chains {
			b.WriteString("-F " + c + "\n")
		}
		for _, j := range jumps {
			b.WriteString(j + "\n")
		}
		for _, c := range chains {
			b.WriteString("-X " + c + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table, jumps, chains = line[1:], nil, nil
		case line == "COMMIT":
			flush()
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			if gone[table+" "+name] {
				chains = append(chains, name)
			}
		case strings.HasPrefix(line, "-A "):
			chain, rest, _ := strings.Cut(line[3:], " ")
			if !gone[table+" "+chain] && gone[table+" "+target(rest)] {
				jumps = append(jumps, "-D "+line[3:])
			}
		}
	}
	return b.String()
}

// target is the chain that a rule jumps to. It comes last: a comment before it may hold anything.
func target(rule string) string {
	i := strings.LastIndex(" "+rule, " -j ")
	if i < 0 {
		return ""
	}
	name, _, _ := strings.Cut(rule[i+len("-j "):], " ")
	return name
}

func (l linux) restoreRules(ctx context.Context, family, input string) error {
	if input == "" {
		return nil
	}
	_, err := l.run(ctx, input, family+"-restore", "--noflush", "--wait")
	return err
}
