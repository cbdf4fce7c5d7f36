package change

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// SetPause has the agent of a node begin no change and no repair by itself for a time; 0 ends the
// pause. What is under way goes on.
func SetPause(ctx context.Context, a *Agent, length time.Duration, reason string) (*saved.Pause, error) {
	h, err := OpenReadOnly(ctx, a)
	if err != nil {
		return nil, err
	}
	if h.Saved.Live == nil {
		return nil, inspect.ErrNoNode
	}
	if length == 0 {
		return nil, h.Store.Remove(ctx, saved.PauseFile)
	}
	now := inspect.Stamp()
	p := &saved.Pause{Since: now, Until: now.Add(length), Reason: reason}
	return p, h.Store.Save(ctx, saved.PauseFile, p)
}

// Paused returns that a machine is paused; nil if it is not.
func Paused(a *Agent) *health.Waiting {
	p := inspect.Pause(&a.Env)
	if p == nil {
		return nil
	}
	return &health.Waiting{
		Reason: health.MachinePaused, Owner: health.OwnerMachine, NextAttempt: p.Until,
		Message: fmt.Sprintf("%s; `aks-flex-node resume` ends that", health.PauseText(p.Until, p.Reason)),
	}
}
