package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// backend is one kind of firewall.
type backend interface {
	// observe reports whether a rule accepts the packets of r, and if not, whether they are dropped.
	observe(r rule) (open, drops bool, err error)
	// commands returns the commands that add our rule, or remove it and nothing else.
	commands(r rule, open bool) ([][]string, error)
}

// backend returns the backend of a firewall by its name:
//
//	ufw
//	firewalld ZONE              the zone of interfaces that have none
//	nft FAMILY TABLE CHAIN
//	iptables-nft CHAIN          and ip6tables-nft
func (h *Host) backend(name string) (backend, error) {
	words := strings.Fields(name)
	switch {
	case name == "ufw":
		return ufw{h}, nil
	case len(words) == 2 && words[0] == "firewalld":
		return firewalld{h, words[1]}, nil
	case len(words) == 4 && words[0] == "nft":
		return nftChain{h, words[1], words[2], words[3]}, nil
	case len(words) == 2 && strings.HasSuffix(words[0], "-nft"):
		family, _, _ := strings.Cut(words[0], "tables") // the tool is ip6tables-nft, for example
		return iptablesChain{nftChain{h, family, "filter", words[1]}, words[0]}, nil
	}
	return nil, fmt.Errorf("internal error: unknown firewall %s", name)
}

const ourComment = "aks-flex-node" // in the comment of every rule of ours

// rule describes accepted packets: "in tcp 10250,30000-32767", "in from cni0", "forward to cni0",
// "forward translated" (by a Service).
type rule struct{ text, way, how, what string }

func parseRule(text string) rule {
	words := append(strings.Fields(text), "", "", "")
	return rule{text, words[0], words[1], words[2]}
}

func (r rule) comment() string { return ourComment + "-" + dashes.Replace(r.text) }

var dashes = strings.NewReplacer(" ", "-", ",", "-", "/", "-", ":", "-")

func (r rule) isPort() bool { return r.how == "tcp" || r.how == "udp" }

// ports returns the ports of a rule, with a colon between the ends of a range.
func (r rule) ports() string { return strings.ReplaceAll(r.what, "-", ":") }

// Firewalls finds the firewalls of this machine that stop packets of a node. It runs no program.
func (h *Host) Firewalls() ([]state.Firewall, error) {
	filters, err := h.Kernel.Filters()
	if err != nil {
		return nil, err
	}
	var found []state.Firewall
	ufw := h.ufwEnabled()
	if ufw {
		found = append(found, state.Firewall{Name: "ufw"})
	}
	if slices.ContainsFunc(filters, func(f Filter) bool { return f.Table == firewalldTable }) {
		found = append(found, state.Firewall{Name: "firewalld " + h.defaultZone()})
	}
	for _, f := range filters {
		byIPTables := f.Family != "inet" && f.Table == "filter" && f.Name == strings.ToUpper(f.Hook)
		name := "nft " + f.Family + " " + f.Table + " " + f.Name
		if byIPTables {
			name = f.Family + "tables-nft " + f.Name
		}
		if f.Drops && f.Table != firewalldTable && !(byIPTables && ufw) {
			found = append(found, state.Firewall{Name: name, Hook: f.Hook})
		}
	}
	return found, nil
}

// OpeningCommands returns the commands that make an opening, for people to run.
func (h *Host) OpeningCommands(o state.Opening) []string {
	b, err := h.backend(o.Firewall)
	if err != nil {
		return nil
	}
	var lines []string
	commands, _ := b.commands(parseRule(o.Rule), true) // only closing reads what is there
	for _, argv := range commands {
		for i, word := range argv {
			if strings.ContainsAny(word, ` {};"`) {
				argv[i] = "'" + word + "'"
			}
		}
		lines = append(lines, strings.Join(argv, " "))
	}
	return lines
}

type nftChain struct {
	host                *Host
	family, table, name string
}

func (c nftChain) observe(r rule) (open, drops bool, err error) {
	f, err := c.host.filter(c.family, c.table, c.name)
	return slices.ContainsFunc(f.Rules, r.isOurs), f.Drops, err
}

func (r rule) isOurs(is FilterRule) bool { return is.Accepts && is.Comment == r.comment() }

func (c nftChain) commands(r rule, open bool) ([][]string, error) {
	if open {
		packets, _ := r.packets()
		return [][]string{{"nft", fmt.Sprintf("insert rule %s %s %s %s accept comment %s", c.family,
			c.table, c.name, packets, r.comment())}}, nil
	}
	f, err := c.host.filter(c.family, c.table, c.name)
	var commands [][]string
	for _, is := range f.Rules {
		if r.isOurs(is) {
			commands = append(commands, []string{"nft", fmt.Sprintf("delete rule %s %s %s handle %d",
				c.family, c.table, c.name, is.Handle)})
		}
	}
	return commands, err
}

// packets returns the packets of a rule in the words of nft(8) and of iptables(8).
func (r rule) packets() (nft string, iptables []string) {
	switch r.how {
	case "tcp", "udp":
		return r.how + " dport { " + strings.ReplaceAll(r.what, ",", ", ") + " }",
			[]string{"-p", r.how, "-m", "multiport", "--dports", r.ports()}
	case "from":
		return `iifname "` + r.what + `"`, []string{"-i", r.what}
	case "to":
		return `oifname "` + r.what + `"`, []string{"-o", r.what}
	}
	return "ct status dnat", []string{"-m", "conntrack", "--ctstate", "DNAT"}
}

// iptablesChain is a chain of the table filter, changed by iptables and kept in nf_tables.
type iptablesChain struct {
	nftChain
	tool string
}

// commands names the whole rule, so that no other is removed.
func (c iptablesChain) commands(r rule, open bool) ([][]string, error) {
	verb := "-D"
	if open {
		verb = "-I"
	}
	_, packets := r.packets()
	return [][]string{slices.Concat([]string{c.tool, "-w", verb, c.name}, packets,
		[]string{"-m", "comment", "--comment", r.comment(), "-j", "ACCEPT"})}, nil
}

func (h *Host) observeOpening(key state.Key) (state.Resource, error) {
	firewall, text := key.Opening()
	b, err := h.backend(firewall)
	if err != nil {
		return nil, err
	}
	open, drops, err := b.observe(parseRule(text))
	if err != nil {
		return nil, fmt.Errorf("cannot observe firewall %s: %w", firewall, err)
	}
	return state.Opening{Firewall: firewall, Rule: text, Open: open, Off: !open && !drops}, nil
}

// setOpening adds or removes a rule with the firewall's own program. It removes only our rules.
func (h *Host) setOpening(ctx context.Context, to state.Opening) error {
	b, err := h.backend(to.Firewall)
	if err != nil {
		return err
	}
	is, err := h.observeOpening(to.Key())
	if err != nil || state.Equal(is, to) {
		return err
	}
	commands, err := b.commands(parseRule(to.Rule), to.Open)
	if err != nil {
		return err
	}
	for _, argv := range commands {
		_, err := h.Run(ctx, toolLimit, nil, argv...)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; this program is needed to change the firewall: install it", err)
		}
		if err != nil {
			return fmt.Errorf("cannot change firewall %s: %w", to.Firewall, err)
		}
	}
	return nil
}
