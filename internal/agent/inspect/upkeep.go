package inspect

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// Upkeep is what wears out or changes under a machine, as far as it can be told without asking
// anybody else.
func Upkeep(
	ctx context.Context, h *Node, c config.Config, at Cluster, seen host.Facts,
) *health.Upkeep {
	m := h.Reader.Upkeep(ctx, Query(h, c).Filesystems)
	u := &health.Upkeep{
		InodesUsed: m.InodesUsed, ReadOnly: m.ReadOnly, RebootRequired: m.RebootRequired,
		Clock: (*health.Clock)(m.Clock), HostNames: hostNames(h, c, seen), CA: at.CA,
	}
	if h.Saved.Applied != nil {
		for _, swap := range seen.Swaps {
			u.Swaps = append(u.Swaps, swap.Name)
		}
	}
	if h.Saved.Joined() && !c.Azure.ShowsToken() {
		u.Client = health.Answered(validity(h, clientCertificate(c)))
	}
	if sp := c.Azure.ServicePrincipal; sp != nil && sp.CertificateFile != "" {
		u.Principal = health.Answered(principalValidity(*sp))
	}
	return u
}

// hostNames are the names of the machine where kubelet takes its Node's from them, as it does where
// the two agreed when the node was rendered.
func hostNames(h *Node, c config.Config, seen host.Facts) []string {
	g := h.Saved.Live
	if h.Saved.Applied != nil {
		g = h.Saved.Applied
	}
	if g == nil || g.Facts.Renames(c.Agent.NodeName) {
		return nil
	}
	var names []string
	for _, name := range []string{seen.HostName, seen.StaticName} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// principalValidity is that of the certificate that a service principal proves itself with.
func principalValidity(sp config.ServicePrincipal) (health.Validity, error) {
	c, err := identity.Certificate(sp)
	if err != nil {
		return health.Validity{}, err
	}
	return health.Validity{From: c.NotBefore, To: c.NotAfter}, nil
}
