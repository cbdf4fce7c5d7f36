package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// taintsPause is how long nothing is tried in a cluster that does not let the provider set taints.
const taintsPause = 10 * time.Minute

// taintsDiffer tells, by the index, whether the taints of a node are to be set.
func (w *worker) taintsDiffer(s *session, key string) bool {
	seen := s.node(key)
	w.mu.Lock()
	refused := w.Now().Before(w.taintsRefused)
	w.mu.Unlock()
	if seen == nil || seen.other || refused {
		return false
	}
	node, err := w.Index.Node(key)
	if err != nil || !node.Exists() {
		return false
	}
	status, err := w.Index.Status(key)
	want, has := flexnode.Taints(node.Value.Desired), strings.Split(seen.taints, ",")
	return err == nil && (!slices.Equal(want, status.Value.Taints) ||
		slices.ContainsFunc(want, func(t string) bool { return !slices.Contains(has, t) }))
}

// node is what is kept of a node's Node; nil when it is not there.
func (s *session) node(key string) *seenNode {
	found, there, err := s.nodes.GetByKey(flexnode.LastOf(key))
	if err != nil || !there {
		return nil
	}
	seen, _ := found.(*seenNode)
	return seen
}

// setTaints has a Node have the taints that its owner wants, which a kubelet may not change once
// the Node is registered (NodeRestriction). It takes away only what it has set: that is written
// before it is set, in the store, since on the Node itself a machine could name others' taints.
func (w *worker) setTaints(ctx context.Context, key string) (time.Time, error) {
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	if seen := s.node(key); seen == nil || seen.other {
		return noTime, nil // it is set when it registers
	}
	var want, ours []string
	err = w.noteTaints(ctx, key, func(desired, known []string) []string {
		want = desired
		ours = slices.Compact(slices.Sorted(slices.Values(slices.Concat(desired, known))))
		return ours
	})
	if err != nil || len(ours) == 0 {
		return noTime, err
	}
	w.did("taints claimed")
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		return w.patchTaints(ctx, s, flexnode.LastOf(key), want, ours)
	})
	switch {
	case apierrors.IsNotFound(err):
		return noTime, nil
	case apierrors.IsForbidden(err):
		w.log.Warn("the provider may not set taints: apply rbac-provider.yaml", "node", key,
			"error", err)
		again := w.Now().Add(taintsPause)
		w.mu.Lock()
		w.taintsRefused = again
		w.mu.Unlock()
		return again, nil
	case err != nil:
		return noTime, err
	}
	w.did("taints set")
	return noTime, w.noteTaints(ctx, key, func(_, known []string) []string {
		if slices.Equal(known, ours) {
			return want
		}
		return known // another change is under way
	})
}

// noteTaints writes which taints of a node are ours: what decide makes of those that its owner
// wants and those that are known.
func (w *worker) noteTaints(
	ctx context.Context, key string, decide func(desired, known []string) []string,
) error {
	ahead := []string{w.Store.Nodes.Key(key), w.Store.Status.Key(key)}
	_, err := w.Store.Update(ctx, "taints noted", ahead, func(v *store.View) error {
		v.Fence(w.owner.Fence())
		node, err := w.Store.Nodes.In(v, key)
		if err != nil || !node.Exists() {
			decide(nil, nil)
			return err
		}
		row, err := w.Store.Status.In(v, key)
		if err != nil {
			return err
		}
		next := row.Value
		next.Taints = decide(flexnode.Taints(node.Value.Desired), row.Value.Taints)
		if slices.Equal(next.Taints, row.Value.Taints) {
			return nil
		}
		return w.Store.Status.Put(v, key, next)
	})
	return err
}

// patchTaints sets and takes away taints of a Node as it is now. Somebody else's change meanwhile
// is a conflict.
func (w *worker) patchTaints(
	ctx context.Context, s *session, name string, want, ours []string,
) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	nodes := s.connection.Watches.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	next := merged(node.Spec.Taints, want, ours)
	if slices.EqualFunc(node.Spec.Taints, next, func(a, b corev1.Taint) bool {
		return a.MatchTaint(&b) && a.Value == b.Value
	}) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": next},
	})
	if err != nil {
		return fmt.Errorf("internal error: cannot encode taints: %w", err)
	}
	if !w.owner.Valid() {
		return errNotOwner
	}
	_, err = nodes.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// merged are the taints that a Node is to have: what is wanted in the place of what is ours, and
// all others as they are.
func merged(has []corev1.Taint, want, ours []string) []corev1.Taint {
	next := []corev1.Taint{}
	wanted := make([]corev1.Taint, len(want))
	for i, text := range want {
		t := flexnode.ReadTaint(text)
		wanted[i] = corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}
	}
	for _, t := range has {
		same := func(o corev1.Taint) bool { return o.MatchTaint(&t) }
		if !slices.ContainsFunc(wanted, same) && !slices.Contains(ours, writeTaint(t)) {
			next = append(next, t)
		}
	}
	for _, t := range wanted {
		at := slices.IndexFunc(has, func(o corev1.Taint) bool {
			return o.MatchTaint(&t) && o.Value == t.Value
		})
		if at >= 0 {
			t = has[at] // with the time since when
		}
		next = append(next, t)
	}
	return next
}

// writeTaint is a taint as an owner writes it.
func writeTaint(t corev1.Taint) string {
	return flexnode.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}.String()
}
