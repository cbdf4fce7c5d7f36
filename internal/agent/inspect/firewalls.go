package inspect

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// firewallEvidence is which of the owner's firewalls stop what a node needs.
func firewallEvidence(
	ctx context.Context, h *Node, c config.Config, seen host.Facts,
) health.Answer[[]health.Firewall] {
	if c.Network.Firewall == config.FirewallIgnore {
		return health.Answer[[]health.Firewall]{}
	}
	if seen.FirewallErr != nil {
		return health.Answered[[]health.Firewall](nil, seen.FirewallErr)
	}
	var closed []health.Firewall
	bound := node.Bindings{ForeignCNI: ForeignNetworks(seen.CNIConfigs)}
	for _, found := range seen.Firewalls {
		f := health.Firewall{Name: found.Name}
		list := node.Openings(node.Firewall{Name: found.Name, Hook: found.Hook})
		for _, item := range node.Bind(list, bound) {
			is, err := h.Reader.Observe(ctx, item.Resource.Key())
			if err != nil {
				return health.Answered[[]health.Firewall](nil, err)
			}
			if opening := item.Resource.(state.Opening); !state.Satisfies(is, opening) {
				f.Closed = append(f.Closed, opening.Rule)
				f.Commands = append(f.Commands, h.Reader.OpeningCommands(opening)...)
			}
		}
		if len(f.Closed) > 0 {
			closed = append(closed, f)
		}
	}
	return health.Answered(closed, nil)
}
