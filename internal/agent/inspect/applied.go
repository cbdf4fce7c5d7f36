package inspect

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
)

// Applied is the configuration of the node that this machine is, without secrets; nil when it is
// none. What a new configuration leaves open remains as it was resolved in it.
func Applied(ctx context.Context, a *Env) (*config.Config, error) {
	h := NewNode(a, nil)
	for _, p := range []generation.Pointer{generation.Applied, generation.Live} {
		id, err := h.Saved.Generations.Target(ctx, p)
		if err != nil {
			return nil, err
		}
		if id != "" {
			c, err := h.Saved.Generations.Config(id)
			return &c, err
		}
	}
	return nil, nil
}

// AppliedResource is where the configuration is from that the node runs on; zero for none.
func AppliedResource(a *Env) config.Resource {
	from, err := a.Records().Source()
	if err != nil {
		a.Log.Warn("cannot tell which version is applied", "error", err)
	}
	return from.Applied
}
