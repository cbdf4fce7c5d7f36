package inspect

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Parts returns the files and units of the node that is applied; none while there is none.
func Parts(ctx context.Context, a *Env) (files, units []string) {
	h, err := open(ctx, a)
	if err != nil || h.Saved.Applied == nil {
		return nil, nil
	}
	for _, item := range node.Bind(h.Saved.Applied.Node, h.Saved.Bindings.Bindings) {
		name := item.Resource.Key().Name()
		switch item.Resource.(type) {
		case state.Unit:
			units = append(units, name)
		case state.File, state.Link, state.Dir:
			files = append(files, name)
		}
	}
	return files, units
}
