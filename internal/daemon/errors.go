package daemon

import (
	"errors"
	"time"
)

// FinalError is a failure that the same configuration will have again.
type FinalError struct{ Err error }

func (e *FinalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FinalError) Unwrap() error { return e.Err }

// BusyError tells that another verb is at work on this machine.
type BusyError struct{ Err error }

func (e *BusyError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *BusyError) Unwrap() error { return e.Err }

// LaterError reports that a change may not begin yet.
type LaterError struct {
	Why string
	// At is when it may begin at the latest.
	At time.Time
	// Every is how often to try before; 0 is every 10 minutes.
	Every time.Duration
}

// Error tells the cause and the time.
func (e *LaterError) Error() string {
	return e.Why + "; next attempt by " + e.At.UTC().Format(time.RFC3339)
}

// ErrLeft tells that the machine is no node any more.
var ErrLeft = errors.New("this machine has been unbootstrapped")

// ErrDeleted tells that it is none any more since the owner of its configuration has deleted that.
var ErrDeleted = errors.New(
	"the configuration of this node was deleted, and the machine given back")

// ErrReplaced tells that the machine has got the configuration of another resource than the one
// that was deleted. The next process follows that.
var ErrReplaced = errors.New("this machine has another configuration than the one that was deleted")
