package agent

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// warnFirewall tells of a firewall that drops what the node needs. Its tools are programs, so it is
// asked when the machine is about to become another node, and by no check.
func (h *home) warnFirewall(ctx context.Context, c config.Config) {
	if c.Network.Firewall == config.FirewallIgnore {
		return
	}
	found, err := h.Machine.Firewall(ctx)
	if err != nil {
		h.Log.Warn("cannot tell whether a firewall is in the way", "error", err)
		return
	}
	e := health.Evidence{Now: now(), Firewall: health.Answered(health.Firewall(found), nil)}
	for _, condition := range health.Evaluate(health.Firewalls(), e) {
		if condition.Status == health.False {
			h.warn("%s", condition.Message)
		}
	}
}
