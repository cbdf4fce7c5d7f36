package health

import (
	"errors"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

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
