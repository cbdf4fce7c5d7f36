// Package health says how a node is, in conditions: small statements such as KubeletRunning, each
// with a reason, words for people and the owner of the cure. Each is a pure function of the
// evidence that the agent gathers once. Their names are an interface and do not change.
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

// Status is whether a condition holds. All conditions are positive: True is healthy.
type Status string

// The statuses.
const (
	True    Status = "True"
	False   Status = "False"
	Unknown Status = "Unknown"
)

// The owners: who can cure what a condition finds.
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
	// Reason is one CamelCase word for programs; Message is what is wrong and the cure, for people.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Owner names the party that can cure it; "" while nothing is wrong.
	Owner    string    `json:"owner,omitempty"`
	Since    time.Time `json:"since"`              // when status and reason became as they are
	Remedies []string  `json:"remedies,omitempty"` // the commands that Message names
}

// Merge returns now, with the previous Since where status and reason are the same.
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

// First returns the condition that decides: of the ill ones, else the False ones, else the Unknown
// ones, the first in the order of the layers. ok is false when all are True.
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

// Error lists conditions that are False.
type Error struct{ Conditions []Condition }

// Error has one line for each condition.
func (e *Error) Error() string {
	lines := make([]string, len(e.Conditions))
	for i, c := range e.Conditions {
		lines[i] = c.Type + ": " + c.Message
	}
	return strings.Join(lines, "\n")
}

// Problem returns an *Error of the conditions that are False, nil when there are none.
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

// ToReport returns the conditions of a report, at most limit: why a change waits, then the False
// and Unknown ones. Ready, which the provider knows, and what was not checked are left out.
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

// UnhealthyError tells the condition for which a node did not become healthy in time.
type UnhealthyError struct {
	Node      string
	Within    time.Duration
	Condition Condition
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("cannot make Node %s Ready within %s: %s: %s",
		e.Node, e.Within, e.Condition.Type, e.Condition.Message)
}

// Unwritten reports whether a condition fails that must, where a cluster writes nothing down.
func Unwritten(c Condition) bool {
	return c.Status != True && (c.Reason == "NodeStatusUnknown" || slices.Contains([]string{
		LeaseRenewed, PodsSynchronized, LabelsApplied}, c.Type))
}

// AtFault reports whether the configuration keeps the gate closed: the former one gets an answer
// that this one does not get, or something else is wrong.
func AtFault(before, is Evidence, gate []Condition, excused func(Condition) bool) bool {
	if lost(before.Node, is.Node) || lost(before.Credential, is.Credential) ||
		lost(before.Lease, is.Lease) || lost(before.Pods, is.Pods) {
		return true
	}
	err := before.Node.Err
	if !before.Node.Asked || kube.Unavailable(err) || errors.Is(err, kube.ErrUnauthorized) {
		return false
	}
	return slices.ContainsFunc(gate, func(c Condition) bool {
		return c.Status != True && !excused(c) && !c.NotAnswered() && !c.NotChecked()
	})
}

func lost[T any](before, is Answer[T]) bool { return before.OK() && is.Asked && is.Err != nil }
