package transition

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// OutcomeKind is the consequence of an attempt.
type OutcomeKind string

// The kinds of outcomes.
const (
	Done       OutcomeKind = "done"
	Failed     OutcomeKind = "failed"      // it is retried
	Waits      OutcomeKind = "waits"       // it may not begin yet
	Busy       OutcomeKind = "busy"        // another command is running on this machine
	Refused    OutcomeKind = "refused"     // the same configuration would fail again
	RolledBack OutcomeKind = "rolled_back" // it failed, and the machine is back in its old state
	Left       OutcomeKind = "left"        // the machine is no longer a node
	Deleted    OutcomeKind = "deleted"     // the same, since its configuration was deleted
	Replaced   OutcomeKind = "replaced"    // its configuration is now from another resource
)

// Outcome describes the end of an attempt. As an error it is a pointer.
type Outcome struct {
	Kind OutcomeKind
	Err  error // the cause, unless Done
	// RetryAt is when a waiting attempt may begin at the latest, and Every the interval at which to
	// try before; 0 leaves that to the daemon.
	RetryAt time.Time
	Every   time.Duration
}

func (o *Outcome) Error() string {
	if o.Err == nil {
		return string(o.Kind)
	}
	return o.Err.Error()
}
func (o *Outcome) Unwrap() error { return o.Err }

// FirstLine returns the first line of the cause, for a status line.
func (o *Outcome) FirstLine() string { return FirstLine(o.Error()) }

// FirstLine returns the first line of a text.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// ErrSuperseded reports that another command has taken over while this one waited.
var ErrSuperseded error = &Outcome{Kind: Busy, Err: errors.New("another command has taken over")}

// ErrUndecided reports that it is not known yet whether a change works: it remains under way.
var ErrUndecided = errors.New("cannot check whether the node is healthy")

// Of returns the outcome of an error: the first one in it, except that superseded comes first.
func Of(err error) Outcome {
	o, ok := errors.AsType[*Outcome](err)
	hold, held := errors.AsType[*HoldError](err)
	switch {
	case err == nil:
		return Outcome{Kind: Done}
	case errors.Is(err, ErrSuperseded):
		return Outcome{Kind: Busy, Err: err}
	case held && hold.Hold != "":
		return Outcome{Kind: Waits, Err: err, RetryAt: hold.RetryAt}
	case !ok:
		return Outcome{Kind: Failed, Err: err}
	}
	return Outcome{Kind: o.Kind, Err: err, RetryAt: o.RetryAt, Every: o.Every}
}

// RetryWithin is the longest pause before a Failed attempt is retried.
const RetryWithin = 7*time.Minute + 30*time.Second

// HoldError reports that the provider does not let a change begin yet.
type HoldError struct {
	Hold    string    // the provider's code for the reason; "" if the provider does not answer
	RetryAt time.Time // when to ask again; zero leaves that to the caller
	Err     error
}

func (e *HoldError) Error() string {
	if e.Hold == "" {
		return "cannot ask the provider whether the change may begin: " + e.Err.Error()
	}
	return fmt.Sprintf("the provider holds the change (%s): %s", e.Hold, e.Err)
}
func (e *HoldError) Unwrap() error { return e.Err }
