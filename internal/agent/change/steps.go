package change

import (
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Steps shows the engine's changes as the eleven steps, one after the other.
type Steps struct {
	Agent   *Agent
	current state.Step
	began   time.Time
	changes int
	total   int
	last    string
	// did is what the step was shown to be at.
	did       string
	remaining bool
	undoing   bool
	// quiet counts changes without showing their step: it is shown when its turn comes, with the
	// early changes among its own.
	quiet bool
	early int
	ended bool
}

// emit receives an event of the engine.
func (p *Steps) emit(e apply.Event) {
	p.undoing = e.Change.Undo
	if e.Kept != "" && !p.undoing {
		p.Agent.Warn("another process had changed %s; a copy is kept as %s", e.Change.To.Key().Name(),
			e.Kept)
	}
	if e.Change.Step != p.current && !p.remaining && !p.quiet {
		p.advance(e.Change.Step)
	}
	text := state.Describe(e.Change)
	switch {
	case p.quiet && e.Kind != apply.Changing && e.Err == nil:
		p.early++
		p.total++
		p.Agent.Log.Info("changed", "step", e.Change.Step, "change", text)
	case p.quiet:
	case e.Kind == apply.Changing:
		p.Agent.Emit(progress.Event{Kind: progress.Change, Step: p.current, Text: text})
	case e.Err != nil:
		p.fail()
	default:
		p.changes++
		p.total++
		p.last = text
		p.Agent.Log.Info("changed", "step", e.Change.Step, "change", text)
	}
}

// advance ends the current step, passes over those that have nothing to do, and begins next.
// Undoing goes backwards and passes over nothing.
func (p *Steps) advance(next state.Step) {
	if p.current != "" && !p.ended {
		p.done("")
	}
	p.ended = false
	passed := p.current == ""
	for _, step := range state.Steps() {
		if step == next || p.undoing {
			break
		}
		if passed {
			p.pass(step)
		}
		passed = passed || step == p.current
	}
	p.current, p.began, p.changes = next, inspect.Now(), 0
	if next == state.Directories {
		p.changes, p.early = p.early, 0
	}
	p.Agent.Emit(progress.Event{Kind: progress.StepBegan, Step: next})
}

// pass shows a step that has nothing to do, or nothing more than what was done early.
func (p *Steps) pass(step state.Step) {
	text := "nothing to do"
	if step == state.Directories && p.early > 0 {
		text, p.early = Plural(p.early, "change"), 0
	}
	p.Agent.Emit(progress.Event{Kind: progress.StepDone, Step: step, Text: text})
}

// remain shows all that follows as part of the last step: the node's services run and it is being
// joined.
func (p *Steps) remain() {
	if p.current != state.Start {
		p.advance(state.Start)
	}
	p.remaining = true
}

// finish ends the current step with a text.
func (p *Steps) finish(text string) {
	p.done(text)
	p.ended = true
}

// doing shows what the current step is at.
func (p *Steps) doing(text string) {
	if text == p.did {
		p.Agent.Alive()
		return
	}
	p.did = text
	p.Agent.Emit(progress.Event{Kind: progress.Doing, Step: p.current, Text: text})
}

// fail ends the current step as failed.
func (p *Steps) fail() {
	p.Agent.Emit(progress.Event{Kind: progress.StepFailed, Step: p.current})
	p.ended = true
}

// done ends the current step. Without a text it says what was changed.
func (p *Steps) done(text string) {
	if text == "" {
		text = Plural(p.changes, "change")
		if p.changes == 1 {
			text = p.last
		}
	}
	p.Agent.Emit(progress.Event{
		Kind: progress.StepDone, Step: p.current, Text: text, Took: time.Since(p.began),
	})
}

// end ends the last step, unless it has failed.
func (p *Steps) end() {
	if p.current != "" && !p.ended {
		p.done("")
	}
}

// Plural returns a number of things.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
