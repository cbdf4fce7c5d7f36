package agent

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// upkeep is what wears out or changes under a machine, as far as it can be told without asking
// anybody else.
func (h *home) upkeep(
	ctx context.Context, c config.Config, at where, seen host.Facts,
) *health.Upkeep {
	m := h.Machine.Upkeep(ctx, h.query(c).Filesystems)
	u := &health.Upkeep{
		InodesUsed: m.InodesUsed, ReadOnly: m.ReadOnly, RebootRequired: m.RebootRequired,
		Clock: (*health.Clock)(m.Clock), HostNames: h.hostNames(c, seen), CA: at.CA,
	}
	if h.saved.Applied != nil {
		for _, swap := range seen.Swaps {
			u.Swaps = append(u.Swaps, swap.Name)
		}
	}
	if h.saved.Joined() && !c.Azure.ShowsToken() {
		u.Client = health.Answered(h.validity(clientCertificate(c)))
	}
	if sp := c.Azure.ServicePrincipal; sp != nil && sp.CertificateFile != "" {
		u.Principal = health.Answered(principalValidity(*sp))
	}
	return u
}

// hostNames are the names of the machine where kubelet takes its Node's from them, as it does where
// the two agreed when the node was rendered.
func (h *home) hostNames(c config.Config, seen host.Facts) []string {
	g := h.saved.Live
	if h.saved.Applied != nil {
		g = h.saved.Applied
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

// pollsOf is how the provider is asked, as far as a service does it.
func pollsOf(w *Work) *health.Polls {
	if w == nil || w.Polls == nil {
		return nil
	}
	p := &health.Polls{Since: w.Polls.Answered, Err: w.Polls.Error,
		Lost: w.Polls.Failures}
	if p.Since.IsZero() {
		p.Since = w.Polls.First
	}
	return p
}
