// Package progress tells people what a verb is doing: one stream of events, drawn on a terminal,
// written as lines into a pipe, or logged by a service. It decides nothing: the agent emits events,
// the command chooses the view, which many goroutines may call at once.
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
	StepFailed             // Step has failed; Text may say why
	Doing                  // within Step, something that takes time: Text
	Change                 // within Step, the host is being changed: Text
	Bytes                  // Done of Total bytes of Name have arrived (Total 0: unknown)
	Fetched                // Name of Total bytes has arrived and is verified; Took is its time
	Retry                  // the download of Name is tried again: Text says why
	Warning                // somebody should act: Text
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
