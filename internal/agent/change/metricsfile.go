package change

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// RemoveMetrics removes the file that metrics were written to.
func RemoveMetrics(ctx context.Context, h *Home, file string) error {
	is, err := h.Agent.Machine.Observe(ctx, state.PathKey(file))
	if _, written := is.(state.File); err != nil || !written {
		return err
	}
	return h.Agent.Machine.Set(ctx, state.Change{From: is, To: state.Absent{Path: file}, Undo: true},
		nil)
}
