package host

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// ufw is Ubuntu's firewall. While it is enabled, the rules of its files are in force.
type ufw struct{ host *Host }

const ufwConf, ufwRules = "/etc/ufw/ufw.conf", "/etc/ufw/user.rules"

func (h *Host) ufwEnabled() bool {
	data, err := h.ReadFile(ufwConf)
	lines := strings.Split(strings.ToLower(string(data)), "\n")
	return err == nil && slices.Contains(lines, "enabled=yes")
}

func (u ufw) observe(r rule) (open, drops bool, err error) {
	open, err = u.has(r.tuple())
	return open, u.host.ufwEnabled(), err
}

// has reports whether the rules of ufw have a line that starts with start.
func (u ufw) has(start string) (bool, error) {
	data, err := u.host.ReadFile(ufwRules)
	if except(err, fs.ErrNotExist) != nil {
		return false, fmt.Errorf("cannot read the rules of ufw: %w", err)
	}
	return slices.ContainsFunc(strings.Split(string(data), "\n"), func(line string) bool {
		return strings.HasPrefix(strings.TrimSpace(line)+" ", start+" ")
	}), nil
}

// tuple returns the line that ufw keeps for the rule and IPv4, up to its comment.
func (r rule) tuple() string {
	const anywhere = " 0.0.0.0/0 any 0.0.0.0/0 "
	verb := "allow "
	if r.way == "forward" {
		verb = "route:allow "
	}
	way := map[string]string{"from": "in_" + r.what, "to": "out_" + r.what}[r.how]
	if way == "" {
		return "### tuple ### " + verb + r.how + " " + r.ports() + anywhere + "in"
	}
	return "### tuple ### " + verb + "any any" + anywhere + way
}

// commands leaves a rule whose comment was changed by others.
func (u ufw) commands(r rule, open bool) ([][]string, error) {
	if open {
		return [][]string{append(r.ufw("allow"), "comment", r.comment())}, nil
	}
	ours, err := u.has(r.tuple() + " comment=" + hex.EncodeToString([]byte(r.comment())))
	if err != nil || !ours {
		return nil, err
	}
	return [][]string{r.ufw("delete", "allow")}, nil
}

func (r rule) ufw(verb ...string) []string {
	argv := []string{"ufw"}
	if r.way == "forward" {
		argv = append(argv, "route")
	}
	argv = append(argv, verb...)
	switch r.how {
	case "from":
		return append(argv, "in", "on", r.what)
	case "to":
		return append(argv, "out", "on", r.what)
	}
	return append(argv, r.ports()+"/"+r.how)
}
