package agent

import "time"

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
	current, former manner
	// asked is the one of the two that is in use since turned; back means the former.
	asked  manner
	back   bool
	turned time.Time
	// answered means that a poll in the current manner has been answered, failing is since when none
	// was.
	answered bool
	failing  time.Time
}

// change takes in how the provider is to be asked, and reports whether that differs, and whether it
// has answered in that manner.
func (w *ways) change(current, former manner) (changed, answered bool) {
	w.former = former
	if current.same(w.current) {
		return false, w.answered
	}
	w.current, w.answered, w.failing = current, false, time.Time{}
	return true, false
}

// overdue reports whether it is time to ask in the former manner.
func (w *ways) overdue() bool {
	return w.former.asks && !w.failing.IsZero() && now().Sub(w.failing) >= formerAfter
}

// turn decides how the provider is asked next, and reports whether that is the former manner.
func (w *ways) turn() (back bool) {
	w.back = !w.back && w.overdue()
	if w.asked = w.current; w.back {
		w.asked = w.former
	}
	w.turned = now()
	return w.back
}

// polled takes in how a poll has ended, and reports whether it is time for the next turn.
func (w *ways) polled(err error) bool {
	switch {
	case w.back:
		return now().Sub(w.turned) >= formerFor
	case !w.asked.same(w.current): // another manner was settled upon during the poll
		return false
	case err == nil:
		w.answered, w.failing = true, time.Time{}
	case w.failing.IsZero():
		w.failing = now()
	}
	return err != nil && w.overdue()
}

// formerManner returns the manner in which the provider has answered last, as long as it has not
// answered in that of the applied configuration; else the zero value.
func (h *home) formerManner() manner {
	id := h.saved.Bindings.Answered
	if id == "" {
		return manner{}
	}
	c, err := h.saved.Generations.Config(id)
	if err != nil {
		h.Log.Warn("the former way to the provider cannot be read", "error", err)
		return manner{}
	}
	return mannerOf(c.WithCredentials(h.saved.Secrets[id]))
}

// answeredBefore returns the generation in whose manner the provider has answered last; "" when the
// one that is being committed asks it in the same manner, or not at all.
func (w *work) answeredBefore() string {
	id, former := w.home.saved.Bindings.Answered, w.formerManner()
	if !former.asks && w.saved.Applied != nil {
		id, former = w.saved.Applied.ID, mannerOf(w.home.saved.ConfigOf(w.saved.Applied))
	}
	next := mannerOf(w.config)
	if !next.asks || !former.asks || next.sameWay(former) {
		return ""
	}
	return id
}
