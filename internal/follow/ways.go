package follow

import "time"

const (
	// formerAfter is for how long polls fail before the provider is asked in the former way too.
	formerAfter = 15 * time.Minute
	// formerFor is for how long it is asked in that way until the configured one is tried again.
	formerFor = 5 * time.Minute
)

// Ways holds the ways to ask the provider: the configured one, and, until it has answered in that,
// in turns the former one. A change that cuts a node off could not be taken back otherwise.
type Ways struct {
	current, former Manner // former is the zero value where current is the only way
	// Asked is the one of the two that is in use since turned; Back means the former.
	Asked  Manner
	Back   bool
	turned time.Time
	// answered tells that a poll in this manner was answered, failing since when none was.
	answered bool
	failing  time.Time
}

// NewWays are those of a provider that is asked in one manner.
func NewWays(m Manner) Ways { return Ways{current: m, Asked: m} }

// Settle sets the two manners. It reports whether the provider has answered in the current one, and
// whether that is another.
func (w *Ways) Settle(current, former Manner) (answered, changed bool) {
	w.former = former
	if current.Same(w.current) {
		return w.answered, false
	}
	w.current, w.answered, w.failing = current, false, time.Time{}
	return false, true
}

// Asks reports whether the provider is asked as the configuration says.
func (w *Ways) Asks() bool { return w.current.Asks }

// overdue reports whether it is time to ask in the former manner.
func (w *Ways) overdue() bool {
	return w.former.Asks && !w.failing.IsZero() && time.Since(w.failing) >= formerAfter
}

// Turn decides how the provider is asked next, and reports whether that is the former manner.
func (w *Ways) Turn() (back bool) {
	w.Back = !w.Back && w.overdue()
	if w.Asked = w.current; w.Back {
		w.Asked = w.former
	}
	w.turned = time.Now()
	return w.Back
}

// Polled takes in how a poll has ended, and reports whether it is time for the next turn.
func (w *Ways) Polled(err error) bool {
	switch {
	case w.Back:
		return time.Since(w.turned) >= formerFor
	case !w.Asked.Same(w.current): // another manner was settled upon during the poll
		return false
	case err == nil:
		w.answered, w.failing = true, time.Time{}
	case w.failing.IsZero():
		w.failing = time.Now()
	}
	return err != nil && w.overdue()
}
