package change

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// managedFirewalls are the owner's firewalls that a node opens: those that are found, and those
// that it has opened, which may stop nothing only now.
func managedFirewalls(h *Home, c config.Config, seen host.Facts) []node.Firewall {
	if c.Network.Firewall != config.FirewallManage {
		return nil
	}
	var list []node.Firewall
	for _, f := range seen.Firewalls {
		list = append(list, node.Firewall{Name: f.Name, Hook: f.Hook})
	}
	if h.Saved.Applied != nil {
		list = append(list, h.Saved.Applied.Facts.Firewalls...)
	}
	slices.SortFunc(list, func(a, b node.Firewall) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Hook, b.Hook))
	})
	return slices.Compact(list)
}

// unknownFirewalls is why it is not known which firewalls a new node would have to open; nil where
// that is known, or nothing is to be opened anew.
func unknownFirewalls(t *Target) error {
	if t.seen.FirewallErr == nil || t.unchanged ||
		t.Input.Config.Network.Firewall != config.FirewallManage {
		return nil
	}
	return fmt.Errorf("cannot find the firewalls that network.firewall: manage is to open: %w",
		t.seen.FirewallErr)
}
