package service

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
)

const (
	// formerAfter is for how long polls fail before the provider is asked in the former way too.
	formerAfter = 15 * time.Minute
	// formerFor is for how long it is asked in that way until the configured one is tried again.
	formerFor = 5 * time.Minute
)

// ways are how the provider is asked: as the applied configuration says, and, until it has answered
// in that manner, in turns with the manner in which it has answered last. A change that cuts a node
// off from its provider could not be taken back otherwise.
type ways struct {
	// former is the zero value when there is no other way than the current one.
	current, former change.Manner
	// asked is the one of the two that is in use since turned; back means the former.
	asked  change.Manner
	back   bool
	turned time.Time
	// answered means that a poll in the current manner has been answered, failing is since when none
	// was.
	answered bool
	failing  time.Time
}

// overdue reports whether it is time to ask in the former manner.
func (w *ways) overdue() bool {
	return w.former.Asks && !w.failing.IsZero() && inspect.Now().Sub(w.failing) >= formerAfter
}

// turn decides how the provider is asked next, and reports whether that is the former manner.
func (w *ways) turn() (back bool) {
	w.back = !w.back && w.overdue()
	if w.asked = w.current; w.back {
		w.asked = w.former
	}
	w.turned = inspect.Now()
	return w.back
}

// polled takes in how a poll has ended, and reports whether it is time for the next turn.
func (w *ways) polled(err error) bool {
	switch {
	case w.back:
		return inspect.Now().Sub(w.turned) >= formerFor
	case !w.asked.Same(w.current): // another manner was settled upon during the poll
		return false
	case err == nil:
		w.answered, w.failing = true, time.Time{}
	case w.failing.IsZero():
		w.failing = inspect.Now()
	}
	return err != nil && w.overdue()
}
