package front

import (
	"context"
	"strconv"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// parent is a cluster with what its nodes are rendered with now.
func (a *API) parent(v *store.View, c flexnode.Cluster) flexnode.Parent {
	facts, err := a.Store.Layer(v.Context(), c.Facts)
	if err != nil {
		v.Fail(err)
	}
	return flexnode.Parent{
		Cluster: c, FactsLayer: facts, Defaults: a.DefaultsLayer(), Installation: a.Installation,
	}
}

// DefaultsLayer returns what the operator gives every node, and that it polls this provider.
func (a *API) DefaultsLayer() *flexnode.Layer {
	a.once.Do(func() {
		a.defaults = flexnode.DefaultsLayer(flexnode.Polling(a.Defaults, first(a.Endpoints), a.Audience))
	})
	return a.defaults
}

// keepDefaults has a change store the layer of defaults, unless it is known to be stored.
func (a *API) keepDefaults(v *store.View) error {
	layer := a.DefaultsLayer()
	if a.defaultsKept.Load() || a.Store.Layers.Row(v, layer.ID).Exists() {
		a.defaultsKept.Store(true)
		return nil
	}
	return a.Store.KeepLayer(v, layer)
}

// decimal is a version as it is on the wire.
func decimal(version int64) string {
	if version == 0 {
		return ""
	}
	return strconv.FormatInt(version, 10)
}

// StoreDefaults stores the layer of defaults, so that no PUT has to.
func (a *API) StoreDefaults(ctx context.Context) error {
	_, err := a.Store.Update(ctx, "defaults written", nil, a.keepDefaults)
	return err
}
