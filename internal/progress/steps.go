package progress

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Steps shows the engine's changes as the eleven steps, in order.
type Steps struct {
	Show  func(Event)
	Alive func() // called instead of Show if nothing new is shown
	Log   *slog.Logger
	Total int // the number of changes
	// Quiet counts changes without showing their step, which is shown later and includes them.
	Quiet bool

	current   state.Step
	began     time.Time
	changes   int
	last      string
	did       string // the last shown activity of the step
	remaining bool
	undoing   bool
	early     int
	ended     bool
}

// Changed handles an event of the engine.
func (p *Steps) Changed(e apply.Event) {
	p.undoing = e.Change.Undo
	if e.Kept != "" && !p.undoing {
		p.Show(Event{Kind: Warning, Text: fmt.Sprintf("another process had changed %s; a copy is kept "+
			"as %s", e.Change.To.Key().Name(), e.Kept)})
	}
	if e.Change.Step != p.current && !p.remaining && !p.Quiet {
		p.Advance(e.Change.Step)
	}
	text := state.Describe(e.Change)
	switch {
	case e.Done && e.Err == nil:
		p.Total++
		p.Log.Info("changed", "step", e.Change.Step, "change", text)
		if p.Quiet {
			p.early++
		} else {
			p.changes++
			p.last = text
		}
	case p.Quiet:
	case !e.Done:
		p.Show(Event{Kind: Change, Step: p.current, Text: text})
	default:
		p.Fail()
	}
}

// Advance ends the step, reports those with nothing to do, and begins next.
func (p *Steps) Advance(next state.Step) {
	p.End()
	p.ended = false
	passed := p.current == ""
	for _, step := range state.Steps() {
		if step == next || p.undoing {
			break
		}
		if passed {
			text := "nothing to do" // or nothing beyond earlier changes
			if step == state.Directories && p.early > 0 {
				text, p.early = Plural(p.early, "change"), 0
			}
			p.Show(Event{Kind: StepDone, Step: step, Text: text})
		}
		passed = passed || step == p.current
	}
	p.current, p.began, p.changes = next, time.Now(), 0
	if next == state.Directories {
		p.changes, p.early = p.early, 0
	}
	p.Show(Event{Kind: StepBegan, Step: next})
}

// Remain shows everything from now on as part of the last step: the node joins.
func (p *Steps) Remain() {
	if p.current != state.Start {
		p.Advance(state.Start)
	}
	p.remaining = true
}

// Doing shows the current activity of the step.
func (p *Steps) Doing(text string) {
	if text == p.did {
		p.Alive()
		return
	}
	p.did = text
	p.Show(Event{Kind: Doing, Step: p.current, Text: text})
}

// Fail ends the current step as failed.
func (p *Steps) Fail() {
	p.Show(Event{Kind: StepFailed, Step: p.current})
	p.ended = true
}

// Done ends the current step. Without a text it summarises the changes.
func (p *Steps) Done(text string) {
	if text == "" {
		text = Plural(p.changes, "change")
		if p.changes == 1 {
			text = p.last
		}
	}
	p.Show(Event{Kind: StepDone, Step: p.current, Text: text, Took: time.Since(p.began)})
	p.ended = true
}

// End ends the current step, unless it has ended or failed.
func (p *Steps) End() {
	if p.current != "" && !p.ended {
		p.Done("")
	}
}

// Plural formats a number of things.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
