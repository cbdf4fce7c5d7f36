package service

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// keepStatus writes the status file, in which a condition is as old as its status and reason.
func keepStatus(ctx context.Context, a *change.Agent, s *inspect.Status) error {
	var before inspect.Status
	if data, err := a.Machine.ReadFile(inspect.StatusFile); err == nil {
		if err := json.Unmarshal(data, &before); err != nil {
			a.Log.Debug("cannot read the previous status", "error", err)
		}
	}
	s.Conditions = health.Merge(before.Conditions, s.Conditions)
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	file := state.NewFile(inspect.StatusFile, 0o600, string(body)+"\n")
	return a.Machine.Set(ctx, state.Change{To: file}, nil)
}
