package agent

import (
	"context"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// glance is the machine while one check looks at it: systemd is asked once for each unit, whoever
// wants to know of it.
type glance struct {
	Machine
	units map[string]host.UnitStatus
}

// glance makes what follows one look at the machine.
func (h *home) glance() {
	g := &glance{Machine: h.Machine, units: make(map[string]host.UnitStatus)}
	h.Machine, h.engine.Host = g, g
}

// UnitStatus implements Machine.
func (g *glance) UnitStatus(ctx context.Context, name string) (host.UnitStatus, error) {
	if is, known := g.units[name]; known {
		return is, nil
	}
	is, err := g.Machine.UnitStatus(ctx, name)
	if err == nil {
		g.units[name] = is
	}
	return is, err
}

// Observe implements Machine.
func (g *glance) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	name, isUnit := strings.CutPrefix(string(key), "unit:")
	if !isUnit {
		return g.Machine.Observe(ctx, key)
	}
	is, err := g.UnitStatus(ctx, name)
	if err != nil {
		return nil, err
	}
	return is.Resource(name), nil
}
