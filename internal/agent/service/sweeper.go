package service

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
)

// sweepEvery is how often all artifacts in the store are compared with what was verified.
const sweepEvery = 24 * time.Hour

// sweepStore reads the store when due, as far as ctx allows, unless the node is being changed.
func sweepStore(ctx context.Context, h *change.Home) error {
	if h.Saved.Applied == nil || h.Saved.Transition != nil {
		return nil
	}
	s, known := inspect.Swept(h.Node)
	age := time.Now().Sub(s.At) // negative when the clock was set back
	if !known || age < 0 || age >= sweepEvery {
		s = inspect.Sweep{At: inspect.Stamp(), Generation: h.Saved.Applied.ID, Damaged: s.Damaged,
			Left: slices.Sorted(maps.Keys(h.Saved.Applied.Facts.Store))}
	}
	file := change.VolatileWriter(h.Agent)
	for first := true; len(s.Left) > 0 && ctx.Err() == nil; first = false {
		name := s.Left[0]
		s.Left = s.Left[1:]
		// Noted before it is read: what ends this process is not tried again at once.
		if err := file.Save(ctx, inspect.SweepFile, s); err != nil {
			return err
		}
		damaged, err := change.Unsound(ctx, h.Node, h.Saved.Applied, name)
		switch {
		case err != nil && !first: // with more time
			s.Left = append(s.Left, name)
		case err == nil:
			s.Damaged = slices.DeleteFunc(s.Damaged, func(n string) bool { return n == name })
			if damaged {
				s.Damaged = append(s.Damaged, name)
			}
		}
		if err := file.Save(context.WithoutCancel(ctx), inspect.SweepFile, s); err != nil {
			return err
		}
	}
	return nil
}
