package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// keptLayers limits the cached layers of a process: the nodes of a cluster share few.
const keptLayers = 256

// Layer returns a layer by its content id; nil for an empty id. The last ones are cached, since
// layers do not change.
func (s *Store) Layer(ctx context.Context, id string) (*flexnode.Layer, error) {
	if layer, ok := s.layers.Get(id); ok || id == "" {
		return layer, nil
	}
	row, err := s.Layers.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !row.Exists() {
		return nil, fmt.Errorf("internal error: the layer %s of a configuration is missing", id)
	}
	layer, err := flexnode.ReadLayer(row.Value)
	if err == nil && layer.ID != id {
		err = fmt.Errorf("cannot use the layer %s of configurations: what is stored is another", id)
	}
	if err == nil {
		s.layers.Add(id, layer)
	}
	return layer, err
}

// KeepLayer stores a layer within a change, unless it is stored already.
func (s *Store) KeepLayer(v *View, layer *flexnode.Layer) error {
	s.layers.Add(layer.ID, layer)
	if known, err := v.get(s.Layers.Key(layer.ID)); err != nil || known.Revision != 0 {
		return err
	}
	return s.Layers.Put(v, layer.ID, layer.Text)
}

// CollectLayers deletes the layers of facts that neither a cluster nor a kept revision has. Only
// the present facts of a cluster get into new revisions, and a layer is written again when it
// becomes these, so one that was written meanwhile is kept.
func (s *Store) CollectLayers(ctx context.Context) error {
	clusters, at, err := s.Clusters.List(ctx, "")
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, c := range clusters {
		used[c.Value.Facts] = true
	}
	_, err = s.History.each(ctx, "", func(r Row[flexnode.History], err error) error {
		all, failed := r.Value.All()
		for _, revision := range all {
			used[revision.Facts] = true
		}
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	ids, err := s.Layers.Keys(ctx, "")
	if err != nil {
		return err
	}
	_, err = s.UpdateEach(ctx, slices.DeleteFunc(ids, func(id string) bool { return used[id] }), Each{
		What: "layer collected",
		One: func(v *View, id string) error {
			layer := s.Layers.Row(v, id)
			cluster, err := flexnode.ClusterOfFacts(layer.Value)
			if err == nil && cluster != "" && layer.Revision <= at {
				s.Layers.Delete(v, id)
			}
			return err
		},
	})
	return err
}

// RevisionIn returns a revision of a history, nil if it is not kept. If it cannot be read, the
// change fails (View.Fail).
func RevisionIn(v *View, h flexnode.History, version int64) *flexnode.Revision {
	revision, err := h.Find(version)
	v.Fail(err)
	return revision
}

// Kept returns the configuration of a version in a history, without secrets; nil if it is not kept.
func (s *Store) Kept(
	ctx context.Context, h flexnode.History, version int64,
) (map[string]any, error) {
	revision, err := h.Find(version)
	if err != nil || revision == nil {
		return nil, err
	}
	return s.Config(ctx, *revision, flexnode.Grants{})
}

// Content returns the configuration of a revision as it is signed and shown.
func (s *Store) Content(ctx context.Context, r flexnode.Revision) ([]byte, error) {
	if r.Content != nil {
		return r.Content, nil
	}
	whole, err := s.Config(ctx, r, flexnode.Grants{})
	return flexnode.Content(whole), err
}

// Config returns the configuration of a revision, with the given secrets.
func (s *Store) Config(
	ctx context.Context, r flexnode.Revision, g flexnode.Grants,
) (map[string]any, error) {
	defaults, err := s.Layer(ctx, r.Defaults)
	facts, err2 := s.Layer(ctx, r.Facts)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	return flexnode.Config(r, defaults, facts, g)
}
