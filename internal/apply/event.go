package apply

import "github.com/Azure/AKSFlexNode/internal/state"

// EventKind says what an Event tells.
type EventKind int

// What happens to a change.
const (
	Changing EventKind = iota // it begins
	Changed                   // it is made, or failed with Err
)

// Event is one thing that the engine did.
type Event struct {
	Kind   EventKind
	Change state.Change
	Err    error
	// Kept is the path of the copy that was made of what another process had put there.
	Kept string
}
