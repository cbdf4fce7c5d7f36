package transition

import (
	"fmt"
	"time"
)

// HoldError reports that the provider does not let a change begin yet.
type HoldError struct {
	// Hold is the provider's word for the reason; "" when the provider does not answer.
	Hold string
	// RetryAt is when to ask again; zero leaves that to the caller.
	RetryAt time.Time
	Err     error
}

func (e *HoldError) Error() string {
	if e.Hold == "" {
		return "cannot ask the provider whether the change may begin: " + e.Err.Error()
	}
	return fmt.Sprintf("the provider holds the change (%s): %s", e.Hold, e.Err)
}

// Unwrap returns the cause.
func (e *HoldError) Unwrap() error { return e.Err }
