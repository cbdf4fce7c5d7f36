// Package health describes the health of a node as conditions: small statements such as
// KubeletRunning, each with a reason, a message for people and the owner of the cure. Each is a
// pure function of the evidence that the agent gathers once. Their names are a stable API.
package health

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// Status is the status of a condition. All conditions are positive: True is healthy.
type Status string

// The statuses.
const True, False, Unknown Status = "True", "False", "Unknown"

// The owners, who can fix a failed condition.
const (
	OwnerMachine       = "machine"
	OwnerCluster       = "cluster"
	OwnerAzure         = "azure"
	OwnerNetwork       = "network"
	OwnerConfiguration = "configuration"
	OwnerWorkload      = "workload"
)

// Condition is one statement about a node.
type Condition struct {
	Type   string `json:"type"`
	Status Status `json:"status"`
	// Reason is one CamelCase word for programs; Message describes the fault and the cure for people.
	Reason   string    `json:"reason"`
	Message  string    `json:"message,omitempty"`
	Owner    string    `json:"owner,omitempty"`    // can fix it; "" if healthy
	Since    time.Time `json:"since"`              // the last change of status or reason
	Remedies []string  `json:"remedies,omitempty"` // the commands that Message names
}

// Merge returns now, keeping the previous Since of conditions with the same status and reason.
func Merge(before, now []Condition) []Condition {
	merged := slices.Clone(now)
	for i, c := range merged {
		at := slices.IndexFunc(before, func(b Condition) bool {
			return b.Type == c.Type && b.Status == c.Status && b.Reason == c.Reason
		})
		if at >= 0 {
			merged[i].Since = before[at].Since
		}
	}
	return merged
}

// Healthy reports whether all conditions are True.
func Healthy(conditions []Condition) bool {
	return !slices.ContainsFunc(conditions, func(c Condition) bool { return c.Status != True })
}

// First returns the most important condition that is not True: ill ones before other False ones
// before Unknown ones, then by layer. ok is false if all are True.
func First(conditions []Condition) (first Condition, ok bool) {
	known := Names()
	for _, c := range conditions {
		later := cmp.Or(cmp.Compare(c.rank(), first.rank()),
			cmp.Compare(slices.Index(known, c.Type), slices.Index(known, first.Type)))
		if c.Status != True && slices.Contains(known, c.Type) && (!ok || later < 0) {
			first, ok = c, true
		}
	}
	return first, ok
}

func (c Condition) rank() int {
	switch {
	case c.Ill():
		return 0
	case c.Status == False:
		return 1
	}
	return 2
}

// Error is an error with a list of False conditions.
type Error struct{ Conditions []Condition }

// Error returns one line per condition.
func (e *Error) Error() string {
	lines := make([]string, len(e.Conditions))
	for i, c := range e.Conditions {
		lines[i] = c.Type + ": " + c.Message
	}
	return strings.Join(lines, "\n")
}

// Problem returns an *Error with the False conditions, nil if there are none.
func Problem(conditions []Condition) error {
	if failing := failing(conditions); len(failing) > 0 {
		return &Error{Conditions: failing}
	}
	return nil
}

func failing(conditions []Condition) []Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool {
		return c.Status != False
	})
}

// ToReport returns the conditions for a report, at most limit: why a change waits, then the False
// and Unknown ones. It omits Ready, which the provider knows, and unchecked ones.
func ToReport(conditions []Condition, limit int) []Condition {
	told := slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool {
		return c.Status == True || c.Type == NodeReady || c.NotChecked()
	})
	rank := func(c Condition) int {
		if c.Type == NoChangeWaiting {
			return -1
		}
		return c.rank()
	}
	slices.SortStableFunc(told, func(a, b Condition) int { return rank(a) - rank(b) })
	return told[:min(len(told), limit)]
}

// UnhealthyError reports a node that did not become healthy in time, and the deciding condition.
type UnhealthyError struct {
	Node      string
	Within    time.Duration
	Condition Condition
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("cannot make Node %s Ready within %s: %s: %s",
		e.Node, e.Within, e.Condition.Type, e.Condition.Message)
}

// Unwritten reports whether a condition fails as it must while the cluster stores no writes.
func Unwritten(c Condition) bool {
	return c.Status != True && (c.Reason == "NodeStatusUnknown" || slices.Contains([]string{
		LeaseRenewed, PodsSynchronized, LabelsApplied}, c.Type))
}

// AtFault reports whether the new configuration keeps the gate closed: the old one got an answer
// that the new one does not get, or another condition fails without an excuse.
func AtFault(before, is Evidence, gate []Condition, excused func(Condition) bool) bool {
	if lost(before.Node, is.Node) || lost(before.Credential, is.Credential) ||
		lost(before.Lease, is.Lease) || lost(before.Pods, is.Pods) {
		return true
	}
	err := before.Node.Err
	answered := before.Node.Asked && !kube.Unavailable(err) && !errors.Is(err, kube.ErrUnauthorized)
	return answered && slices.ContainsFunc(gate, func(c Condition) bool {
		unanswered := c.Status == Unknown && c.Reason == notAnswered
		return c.Status != True && !excused(c) && !unanswered && !c.NotChecked()
	})
}

func lost[T any](before, is Answer[T]) bool { return before.OK() && is.Asked && is.Err != nil }
