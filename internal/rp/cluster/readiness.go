package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// readiness holds the nodes whose Ready condition must be compared with the stored one.
type readiness struct {
	mu    sync.Mutex
	nodes map[string]bool
	all   bool
}

// add adds nodes, or all, and reports whether they are the first since take.
func (r *readiness) add(all bool, nodes ...string) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = len(r.nodes) == 0 && !r.all
	if r.nodes == nil {
		r.nodes = map[string]bool{}
	}
	for _, key := range nodes {
		r.nodes[key] = true
	}
	r.all = r.all || all
	return first
}

// take returns the nodes to compare, and removes them.
func (r *readiness) take() (nodes []string, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes, all = slices.Sorted(maps.Keys(r.nodes)), r.all
	r.nodes, r.all = nil, false
	return nodes, all
}

// readinessPause collects changes, so that only the last of several is written.
const readinessPause = 500 * time.Millisecond

// noteReady queues a comparison of the Ready condition of a node, noteAllReady of all nodes.
func (w *worker) noteReady(key string) {
	if w.readiness.add(false, key) {
		w.tasks.AddAfter(task{kind: taskReadiness}, readinessPause)
	}
}

func (w *worker) noteAllReady() {
	w.readiness.add(true)
	w.tasks.AddAfter(task{kind: taskReadiness}, readinessPause)
}

// compareReadiness writes the Ready conditions that differ from the stored ones. Those that it does
// not get to are compared again.
func (w *worker) compareReadiness(ctx context.Context) (time.Time, error) {
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	if !s.nodesKnown.Load() {
		return time.Now().Add(nodesPause), nil
	}
	nodes, all := w.readiness.take()
	if all {
		nodes = nil
		w.Index.EachNode(w.key+"/", func(key string, _ bool) { nodes = append(nodes, key) })
	}
	changed := w.changedNodes(s, nodes)
	_, err = w.Store.UpdateEach(ctx, changed, store.Each{
		What: "Nodes noted",
		Ahead: func(key string) []string {
			return []string{w.Store.Nodes.Key(key), w.Store.Status.Key(key)}
		},
		One: func(v *store.View, key string) error { return w.putReady(v, s, key) },
	})
	if err == nil {
		return noTime, nil
	}
	w.readiness.add(false, changed...)
	if ctx.Err() != nil { // the task ran out of time: there are many
		return time.Now(), nil
	}
	return noTime, fmt.Errorf("cannot write the state of Nodes: %w", err)
}

// changedNodes returns the nodes whose Ready condition must be written, and queues their taints.
func (w *worker) changedNodes(s *session, nodes []string) (changed []string) {
	for _, key := range nodes {
		status, err := w.Index.Status(key)
		if err != nil {
			continue
		}
		if pause, differ := w.taintsDiffer(s, key, status.Value); differ {
			w.tasks.AddAfter(task{taskTaints, key}, pause)
		}
		if w.differs(s, key, status.Value) {
			changed = append(changed, key)
		}
	}
	return changed
}

// differs reports, by the index, whether the Ready condition of a node differs from the stored one.
func (w *worker) differs(s *session, key string, stored flexnode.Status) bool {
	if same(stored.Ready, s.ready(key, stored.Ready, noTime)) {
		return false
	}
	node, err := w.Index.Node(key)
	return err == nil && node.Exists()
}

// ready returns the present Ready condition of a node; known is the stored one. It is Unknown for a
// Node that is gone, and nil for one that never existed.
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

// readyNow returns the present Ready condition of a node; nil while it is unknown.
func (w *worker) readyNow(key string, stored *api.Condition) *api.Condition {
	s, err := w.use()
	if err != nil || !s.nodesKnown.Load() {
		return nil
	}
	return s.ready(key, stored, time.Now())
}

// same reports whether two conditions are equal, with times to the second as they are stored.
func same(a, b *api.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	equal := x.LastTransitionTime.Equal(y.LastTransitionTime)
	x.LastTransitionTime, y.LastTransitionTime = noTime, noTime
	return equal && x == y
}

// putReady writes the Ready condition of a node, unless the node was deleted meanwhile.
func (w *worker) putReady(v *store.View, s *session, key string) error {
	v.Fence(w.owner.Fence())
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
