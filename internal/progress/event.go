// Package progress tells people what a verb is doing: one stream of events, drawn on a terminal, written as plain lines into a
// pipe or a journal. It decides nothing; the agent emits, the command chooses the view.
package progress

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Kind says what an Event tells.
type Kind int

// The kinds of events.
const (
	StepBegan  Kind = iota // Step begins
	StepDone               // Step is done; Text sums it up, Took is its time
	StepFailed             // Step failed with Text
	Doing                  // within Step, something that takes time: Text
	Change                 // within Step, the host is being changed: Text
	Bytes                  // Done of Total bytes of Name have arrived (Total 0: unknown)
	Fetched                // Name has arrived and is verified; Took is its time
	Retry                  // a download goes on after a fault: Text
	Warning                // someone should look: Text
	Note                   // worth knowing: Text
)

// Event is one thing that happened.
type Event struct {
	Kind  Kind
	Step  state.Step
	Text  string
	Name  string
	Done  int64
	Total int64
	Took  time.Duration
}

// View shows events. It is used by many goroutines at once. Close ends what is drawn.
type View interface {
	Show(Event)
	Close()
}
