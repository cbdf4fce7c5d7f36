package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// managedFirewalls are the owner's firewalls that a node opens: those that are found, and those
// that it has opened, which may stop nothing only now.
func (h *home) managedFirewalls(c config.Config, seen host.Facts) []node.Firewall {
	if c.Network.Firewall != config.FirewallManage {
		return nil
	}
	var list []node.Firewall
	for _, f := range seen.Firewalls {
		list = append(list, node.Firewall{Name: f.Name, Hook: f.Hook})
	}
	if h.saved.Applied != nil {
		list = append(list, h.saved.Applied.Facts.Firewalls...)
	}
	slices.SortFunc(list, func(a, b node.Firewall) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Hook, b.Hook))
	})
	return slices.Compact(list)
}

// unknownFirewalls is why it is not known which firewalls a new node would have to open; nil where
// that is known, or nothing is to be opened anew.
func unknownFirewalls(t *target) error {
	if t.seen.FirewallErr == nil || t.unchanged ||
		t.input.Config.Network.Firewall != config.FirewallManage {
		return nil
	}
	return fmt.Errorf("cannot find the firewalls that network.firewall: manage is to open: %w",
		t.seen.FirewallErr)
}

// firewallEvidence is which of the owner's firewalls stop what a node needs.
func (h *home) firewallEvidence(
	ctx context.Context, c config.Config, seen host.Facts,
) health.Answer[[]health.Firewall] {
	if c.Network.Firewall == config.FirewallIgnore {
		return health.Answer[[]health.Firewall]{}
	}
	if seen.FirewallErr != nil {
		return health.Answered[[]health.Firewall](nil, seen.FirewallErr)
	}
	var closed []health.Firewall
	bound := node.Bindings{ForeignCNI: foreignNetworks(seen.CNIConfigs)}
	for _, found := range seen.Firewalls {
		f := health.Firewall{Name: found.Name}
		list := node.Openings(node.Firewall{Name: found.Name, Hook: found.Hook})
		for _, item := range node.Bind(list, bound) {
			is, err := h.Machine.Observe(ctx, item.Resource.Key())
			if err != nil {
				return health.Answered[[]health.Firewall](nil, err)
			}
			if opening := item.Resource.(state.Opening); !state.Satisfies(is, opening) {
				f.Closed = append(f.Closed, opening.Rule)
				f.Commands = append(f.Commands, h.Machine.OpeningCommands(opening)...)
			}
		}
		if len(f.Closed) > 0 {
			closed = append(closed, f)
		}
	}
	return health.Answered(closed, nil)
}
