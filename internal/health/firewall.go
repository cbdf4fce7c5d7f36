package health

import "strings"

// firewallOpen: behind a firewall that drops what no rule accepts, a node is Ready, but its pods
// reach nothing and nothing reaches its kubelet.
func firewallOpen(e Evidence) Condition {
	found := e.Machine.Firewalls
	if e.Wanted.FirewallIgnored {
		return holds()
	}
	if !found.OK() {
		return found.missing()
	}
	if len(found.Value) == 0 {
		return holds()
	}
	var names, commands []string
	for _, f := range found.Value {
		names = append(names, f.Name+" ("+strings.Join(f.Closed, "; ")+")")
		commands = append(commands, f.Commands...)
	}
	message := "a firewall of this machine stops what a node needs: " + strings.Join(names, ", ")
	cure := "; set network.firewall to manage, or to ignore where other rules let it pass, or run: " +
		strings.Join(commands, "; ")
	if e.Wanted.FirewallManaged {
		cure = "; open it again with `aks-flex-node bootstrap`"
	}
	return fails(OwnerMachine, "FirewallBlocks", message+cure)
}
