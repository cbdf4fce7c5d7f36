package change

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Repair puts right what differs from what was applied. With things it does so only for them; nil
// means everything.
func Repair(ctx context.Context, a *Agent, things []string) (inspect.Report, error) {
	h, err := OpenLocked(ctx, a, "drift --repair")
	if err != nil {
		return inspect.Report{}, err
	}
	defer h.Close()
	if h.Saved.Applied == nil {
		return inspect.Report{}, inspect.ErrNoNode
	}
	if h.Saved.Transition != nil && h.Saved.Transition.Kind != transition.Repair {
		return inspect.Report{}, comesFirst(*h.Saved.Transition)
	}
	drift, err := inspect.DriftOf(ctx, h.Node)
	if _, blind := errors.AsType[*apply.BlindError](err); blind {
		h.Warn("%v; repairing the rest", err)
	} else if err != nil {
		return inspect.Report{}, err
	}
	if len(drift) == 0 && h.Saved.Transition == nil {
		return inspect.Report{}, nil
	}
	t := following(h, transition.Decision{Kind: transition.Repair, To: h.Saved.Applied.ID})
	t.Ungated, t.Things = true, things
	return inspect.Report{Changes: drift}, run(ctx, h, t, "", Shown(a))
}

// comesFirst returns the outcome of a repair or a rollback while a change is under way.
func comesFirst(t transition.Transition) error {
	finish := "bootstrap"
	if t.GoesBack() {
		finish = "rollback"
	}
	return &transition.Outcome{Kind: transition.Busy, Err: fmt.Errorf(
		"cannot begin now: a %s is under way (phase %s); finish it with `aks-flex-node %s`",
		t.Kind, t.Phase, finish)}
}
