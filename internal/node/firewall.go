package node

import (
	"strings"

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

// openings has the owner's firewalls let a node's traffic pass, where that is asked for: then the
// facts have them.
func openings(p *part) {
	for _, f := range p.facts.Firewalls {
		for _, item := range Openings(f) {
			p.put(item)
		}
	}
}
