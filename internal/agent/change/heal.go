package change

import (
	"context"
	"maps"
	"path"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// toHeal names the artifacts that have to be fetched although they are in the store: what the last
// sweep has found, and what an unbootstrap that did not end may have removed half of.
func toHeal(ctx context.Context, w *work, t *transition.Transition) ([]string, error) {
	suspects := slices.Sorted(maps.Keys(w.to.Facts.Store))
	if t.Follows != transition.Leave {
		last, _ := inspect.Swept(w.Home.Node)
		suspects = slices.DeleteFunc(slices.Clone(last.Damaged), func(name string) bool {
			_, wanted := w.to.Facts.Store[name]
			return !wanted || len(t.Things) > 0 && !slices.Contains(t.Things, string(inspect.StoreKey(name)))
		})
	}
	var list []string
	for _, name := range suspects {
		heal, err := Unsound(ctx, w.Home.Node, w.to, name)
		if err != nil {
			return nil, err
		}
		if heal {
			list = append(list, name)
		}
	}
	return list, nil
}

// oweHealed has the units restart that run what is about to be replaced.
func oweHealed(ctx context.Context, w *work) error {
	var units []string
	for _, name := range w.healing {
		for _, item := range inspect.LinksInto(w.to, name) {
			units = append(units, item.Owes...)
		}
	}
	return w.Engine.Owe(ctx, units...)
}

// healed notes that the artifacts are what was verified.
func healed(ctx context.Context, w *work) error {
	last, known := inspect.Swept(w.Home.Node)
	if !known || len(w.healing) == 0 {
		return nil
	}
	last.Damaged = slices.DeleteFunc(last.Damaged, func(name string) bool {
		return slices.Contains(w.healing, name)
	})
	return VolatileWriter(w.Agent).Save(ctx, inspect.SweepFile, last)
}

// Unsound reports whether an artifact of a generation is missing in the store, or not what was
// verified. The error is that of ctx.
func Unsound(
	ctx context.Context, n *inspect.Node, g *generation.Generation, name string,
) (bool, error) {
	store, id := n.Path(node.StoreDir), path.Base(g.Facts.Store[name])
	return artifact.Unsound(ctx, store, id, n.Alive)
}
