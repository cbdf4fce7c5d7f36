package cluster

import (
	"context"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// readinessPause gathers changes of a node, so that the last of several is written.
const readinessPause = 500 * time.Millisecond

// noteReady has the Ready condition of a node be compared with what is stored.
func (w *worker) noteReady(key string) {
	w.tasks.AddAfter(task{taskReadiness, key}, readinessPause)
}

// compareReady writes the Ready condition of a node if it is other than stored, and has taints be
// set. While not all Nodes are known it does nothing: when they are, all are compared.
func (w *worker) compareReady(ctx context.Context, key string) error {
	s, err := w.use()
	if err != nil || !s.nodesKnown.Load() {
		return err
	}
	status, err := w.Index.Status(key)
	if err != nil {
		return err
	}
	if pause, differ := w.taintsDiffer(s, key, status.Value); differ {
		w.tasks.AddAfter(task{taskTaints, key}, pause)
	}
	if !w.differs(s, key, status.Value) {
		return nil
	}
	ahead := []string{w.Store.Nodes.Key(key), w.Store.Status.Key(key)}
	return w.update(ctx, "Nodes noted", ahead, func(v *store.View) error {
		return w.putReady(v, s, key)
	})
}

// differs tells, by the index, whether the Ready condition of a node is other than stored.
func (w *worker) differs(s *session, key string, stored flexnode.Status) bool {
	if same(stored.Ready, s.ready(key, stored.Ready, noTime)) {
		return false
	}
	node, err := w.Index.Node(key)
	return err == nil && node.Exists()
}

// ready is the Ready condition that a node has now; known is the stored one. A Node that is gone is
// Unknown, one that never was has none.
func (s *session) ready(key string, known *api.Condition, now time.Time) *api.Condition {
	node := s.node(flexnode.LastOf(key))
	switch {
	case node != nil && node.whose == foreign:
		if known != nil && known.Reason == flexnode.NodeForeign {
			return known
		}
		return flexnode.ForeignNode(now)
	case node != nil:
		return node.condition()
	case known == nil || known.Reason == flexnode.NodeNotFound:
		return known
	}
	return flexnode.NodeMissing(now)
}

// readyNow is the Ready condition that a node has now; nil while that is not known.
func (w *worker) readyNow(key string, stored *api.Condition) *api.Condition {
	s, err := w.use()
	if err != nil || !s.nodesKnown.Load() {
		return nil
	}
	return s.ready(key, stored, time.Now())
}

// same compares conditions; times as they are written.
func same(a, b *api.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	equal := x.LastTransitionTime.Equal(y.LastTransitionTime)
	x.LastTransitionTime, y.LastTransitionTime = noTime, noTime
	return equal && x == y
}

// putReady writes the Ready condition of a node. One that is deleted meanwhile gets no status.
func (w *worker) putReady(v *store.View, s *session, key string) error {
	node, row := w.Store.Nodes.Row(v, key), w.Store.Status.Row(v, key)
	if !node.Exists() {
		return nil
	}
	ready := s.ready(key, row.Value.Ready, time.Now().UTC().Truncate(time.Second))
	if same(row.Value.Ready, ready) {
		return nil
	}
	next := row.Value
	next.Ready = ready
	seen := s.node(flexnode.LastOf(key))
	if seen != nil && !seen.other() && isFirst(row.Value.Ready) {
		c := claim{want: flexnode.Taints(node.Value.Desired), known: row.Value.Taints,
			has: taintsIn(seen.taints())}
		next.Taints = inOrder(c.known, filtered(c.want, c.on))
	}
	return w.Store.Status.Put(v, key, next)
}
