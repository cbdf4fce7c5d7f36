package agent

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
)

// Applied is the configuration of the node that this machine is, without secrets; nil when it is
// none. What a new configuration leaves open remains as it was resolved in it.
func (a *Agent) Applied(ctx context.Context) (*config.Config, error) {
	h := a.newHome(nil, nil)
	for _, p := range []generation.Pointer{generation.Applied, generation.Live} {
		id, err := h.saved.Generations.Target(ctx, p)
		if err != nil {
			return nil, err
		}
		if id != "" {
			c, err := h.saved.Generations.Config(id)
			return &c, err
		}
	}
	return nil, nil
}
