package health

import (
	"fmt"
	"time"
)

// UnhealthyError tells that a node did not become healthy in time, and the condition that decides.
type UnhealthyError struct {
	Node      string
	Within    time.Duration
	Condition Condition
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("cannot make Node %s Ready within %s: %s: %s",
		e.Node, e.Within, e.Condition.Type, e.Condition.Message)
}
