package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// claim decides which taints of a Node are ours, to set and to take away. Another's taint is never
// ours, be it one that the node's owner wants as well.
type claim struct {
	// want holds the taints that the owner wants, known those known as ours, in order; has those of
	// the Node.
	want, known []string
	has         []corev1.Taint
	// first tells that the Node has just been registered: of what it has, what its owner wants is
	// what its kubelet has registered it with.
	first bool
}

// isFirst tells by the Ready condition that is stored whether a Node is seen for the first time.
func isFirst(ready *api.Condition) bool {
	return ready == nil || ready.Reason == flexnode.NodeNotFound ||
		ready.Reason == flexnode.NodeForeign
}

// on reports whether the Node has a taint.
func (c claim) on(text string) bool {
	return slices.ContainsFunc(c.has, func(t corev1.Taint) bool { return writeTaint(t) == text })
}

// rival reports whether the Node has another's taint of the same key and effect with another value.
// A Node cannot have both.
func (c claim) rival(text string) bool {
	want := readTaint(text)
	return slices.ContainsFunc(c.has, func(t corev1.Taint) bool {
		return t.MatchTaint(&want) && t.Value != want.Value &&
			!slices.Contains(c.known, writeTaint(t))
	})
}

// absent are the wanted taints that the Node is to get: those that it can.
func (c claim) absent() []string {
	return filtered(c.want, func(t string) bool { return !c.on(t) && !c.rival(t) })
}

// ours are those known, those to be set, and those that the Node was registered with.
func (c claim) ours() []string {
	registered := filtered(c.want, func(t string) bool { return c.first && c.on(t) })
	return inOrder(c.known, c.absent(), registered)
}

// held are those of ours that are wanted and on the Node, which is all that is ours in the end.
func (c claim) held() []string {
	return filtered(c.ours(), func(t string) bool { return c.on(t) && slices.Contains(c.want, t) })
}

// merged are the taints that the Node is to have: what is wanted in the place of what is ours, and
// all others as they are.
func (c claim) merged() []corev1.Taint {
	next := []corev1.Taint{}
	for _, t := range c.has { // with the times since when
		text := writeTaint(t)
		if slices.Contains(c.want, text) || !slices.Contains(c.known, text) {
			next = append(next, t)
		}
	}
	for _, text := range c.absent() {
		next = append(next, readTaint(text))
	}
	return next
}

func filtered(list []string, keep func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(list), func(t string) bool { return !keep(t) })
}

func inOrder(lists ...[]string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...))))
}

// readTaint and writeTaint are a taint as an owner writes it.
func readTaint(text string) corev1.Taint {
	t := flexnode.ReadTaint(text)
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}
}

func writeTaint(t corev1.Taint) string {
	return flexnode.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}.String()
}

// taintsIn are those of a Node as they are kept of it, with commas.
func taintsIn(texts string) (list []corev1.Taint) {
	for text := range strings.SplitSeq(texts, ",") {
		if text != "" {
			list = append(list, readTaint(text))
		}
	}
	return list
}
