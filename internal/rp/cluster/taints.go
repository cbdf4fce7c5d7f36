package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// taintsRefusal is the pause in a cluster that does not let the provider set taints.
	taintsRefusal = 10 * time.Minute
	// taintsAgain is the pause before taints are set again on a Node that has lost them. It doubles
	// each time up to taintsLast: another client, such as a webhook, may remove them each time, and
	// the two must not compete as fast as they can.
	taintsAgain = time.Second
	taintsLast  = 10 * time.Minute
)

// taintsDiffer reports, by the index, whether the taints of a node must be set, and after which
// pause.
func (w *worker) taintsDiffer(
	s *session, key string, node flexnode.Node, stored flexnode.Status,
) (pause time.Duration, differ bool) {
	c := claimOf(node, stored)
	seen, set := s.node(flexnode.LastOf(key)), c.set(key)
	if seen == nil {
		w.taintsSet.DeleteEntry(set)
	}
	if seen == nil || s.other(seen) || time.Now().UnixNano() < w.taintsRefused.Load() {
		return 0, false
	}
	c.has = taintsIn(seen.taints.Value())
	if slices.Equal(c.held(), c.known) && len(c.absent()) == 0 {
		return 0, false
	}
	if w.taintsSet.IsInBackOffSinceUpdate(set, time.Now()) {
		pause = w.taintsSet.Get(set)
	}
	return pause, true
}

// node returns the reduced Node with a name; nil if it is not found.
func (s *session) node(name string) *seenNode {
	found, _, _ := s.nodes.GetByKey(name) // a store in memory has no errors
	seen, _ := found.(*seenNode)
	return seen
}

// other reports whether a Node is another's. That of a machine of ours is not, whatever its labels.
func (s *session) other(n *seenNode) bool { return n.otherByLabels() && !s.isOurs(n.name) }

// setTaints sets the taints of a Node that its owner wants; a kubelet may not change them once the
// Node is registered (NodeRestriction). It removes only taints that it has set or that the Node was
// registered with. These are written to the store before they are set: on the Node itself a machine
// could name others' taints.
func (w *worker) setTaints(ctx context.Context, s *session, key string) (time.Time, error) {
	if seen := s.node(flexnode.LastOf(key)); seen == nil || s.other(seen) {
		return noTime, nil // they are set when it registers
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return w.tryTaints(ctx, s, key) })
	switch {
	case apierrors.IsNotFound(err):
		return noTime, nil
	case apierrors.IsForbidden(err):
		w.log.Warn("the provider may not set taints: apply rbac-provider.yaml", "node", key, "error", err)
		again := time.Now().Add(taintsRefusal)
		w.taintsRefused.Store(again.UnixNano())
		return again, nil
	}
	return noTime, err
}

// tryTaints sets the taints of a Node in its present state. A change by another client meanwhile is
// a conflict.
func (w *worker) tryTaints(ctx context.Context, s *session, key string) error {
	reading, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	node, err := s.Client.CoreV1().Nodes().Get(reading, flexnode.LastOf(key), metav1.GetOptions{})
	if err != nil {
		return err
	}
	var c claim
	err = w.noteTaints(ctx, key, func(now claim) []string {
		c = now
		c.has = node.Spec.Taints
		return c.ours()
	})
	ours := c.ours()
	if err != nil || len(ours) == 0 {
		return err
	}
	w.Store.Did("taints claimed")
	note := func(from, to []string) error {
		return w.noteTaints(ctx, key, func(now claim) []string {
			if slices.Equal(now.known, from) {
				return to
			}
			return now.known // another change is under way
		})
	}
	switch err := w.patchTaints(ctx, s, node, c.merged()); {
	case apierrors.IsConflict(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err),
		apierrors.IsInvalid(err), apierrors.IsUnauthorized(err): // nothing was set
		return errors.Join(err, note(ours, c.known))
	case err != nil:
		return err
	}
	w.Store.Did("taints set")
	w.taintsSet.GC()
	w.taintsSet.Next(c.set(key), time.Now())
	c.known, c.has = ours, c.merged()
	return note(ours, c.held())
}

// noteTaints writes the provider's taints of a node: those that decide returns for the wanted and
// the known ones.
func (w *worker) noteTaints(ctx context.Context, key string, decide func(claim) []string) error {
	ahead := []string{w.Store.Nodes.Key(key), w.Store.Status.Key(key)}
	return w.update(ctx, "taints noted", ahead, func(v *store.View) error {
		node, row := w.Store.Nodes.Row(v, key), w.Store.Status.Row(v, key)
		if !node.Exists() {
			decide(claim{})
			return nil
		}
		next := row.Value
		next.Taints = decide(claimOf(node.Value, row.Value))
		if slices.Equal(next.Taints, row.Value.Taints) {
			return nil
		}
		return w.Store.Status.Put(v, key, next)
	})
}

func (w *worker) patchTaints(
	ctx context.Context, s *session, node *corev1.Node, next []corev1.Taint,
) error {
	if slices.EqualFunc(node.Spec.Taints, next, func(a, b corev1.Taint) bool {
		return a.MatchTaint(&b) && a.Value == b.Value
	}) {
		return nil
	}
	return patch(ctx, w, s.Client.CoreV1().Nodes(), node.Name, map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": next},
	})
}

// claim decides which taints of a Node are the provider's, to set and to remove. Another client's
// taint is never the provider's, even if the node's owner wants it too.
type claim struct {
	// want holds the taints that the owner wants, known those known to be the provider's, sorted;
	// has holds those of the Node.
	want, known []string
	has         []corev1.Taint
	// first reports that the Node has just been registered: those of its taints that its owner wants
	// are the ones that its kubelet registered it with.
	first bool
}

// claimOf returns the claim by the rows of a node, without the taints of the Node itself.
func claimOf(n flexnode.Node, stored flexnode.Status) claim {
	ready := stored.Ready
	return claim{want: flexnode.Taints(n.Desired), known: stored.Taints, first: ready == nil ||
		ready.Reason == flexnode.NodeNotFound || ready.Reason == flexnode.NodeForeign}
}

// set returns the name, in worker.taintsSet, of the wanted taints of a node.
func (c claim) set(key string) string { return key + " " + strings.Join(c.want, ",") }

func (c claim) on(text string) bool {
	return slices.ContainsFunc(c.has, func(t corev1.Taint) bool { return writeTaint(t) == text })
}

// rival reports whether the Node has another client's taint of the same key and effect with another
// value. A Node cannot have both.
func (c claim) rival(text string) bool {
	want := readTaint(text)
	return slices.ContainsFunc(c.has, func(t corev1.Taint) bool {
		return t.MatchTaint(&want) && t.Value != want.Value && !slices.Contains(c.known, writeTaint(t))
	})
}

// absent returns the wanted taints that the Node lacks and can have.
func (c claim) absent() []string {
	return filtered(c.want, func(t string) bool { return !c.on(t) && !c.rival(t) })
}

// ours returns the known ones, those to set, and those that the Node was registered with.
func (c claim) ours() []string {
	registered := filtered(c.want, func(t string) bool { return c.first && c.on(t) })
	return inOrder(c.known, c.absent(), registered)
}

// held returns the provider's taints that are wanted and on the Node: its only ones in the end.
func (c claim) held() []string {
	return filtered(c.ours(), func(t string) bool { return c.on(t) && slices.Contains(c.want, t) })
}

// merged returns the taints that the Node should have: the wanted ones in place of the provider's,
// and all others unchanged.
func (c claim) merged() []corev1.Taint {
	next := []corev1.Taint{}
	for _, t := range c.has { // with the times when they were added
		if text := writeTaint(t); slices.Contains(c.want, text) || !slices.Contains(c.known, text) {
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

// readTaint and writeTaint convert a taint from and to the form in which an owner writes it.
func readTaint(text string) corev1.Taint {
	t := flexnode.ReadTaint(text)
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}
}

func writeTaint(t corev1.Taint) string {
	return flexnode.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}.String()
}

// taintsIn returns the taints of a reduced Node, given with commas.
func taintsIn(texts string) (list []corev1.Taint) {
	for text := range strings.SplitSeq(texts, ",") {
		if text != "" {
			list = append(list, readTaint(text))
		}
	}
	return list
}
