package cluster

import (
	"context"
	"strings"
	"time"

	"golang.org/x/time/rate"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// readinessPause collects changes of a node, so that only the last of several is written.
	readinessPause = 500 * time.Millisecond
	// readyRate limits the writes of Ready conditions of a cluster, per second. For a subscription of
	// many nodes it is their number divided by readyShare. The others wait for about readyPause.
	readyRate, readyShare = 50, 60
	readyPause            = 10 * time.Second
)

// noteReady queues a comparison of the Ready condition of a node with the stored one.
func (w *worker) noteReady(key string) {
	w.tasks.AddAfter(task{taskReadiness, key}, readinessPause)
}

// compareReady writes the Ready condition of a node if it differs from the stored one, and queues
// its taints. It does nothing until all Nodes are known: then all nodes are compared.
func (w *worker) compareReady(ctx context.Context, s *session, key string) error {
	if !s.nodesKnown.Load() {
		return nil
	}
	node, err := w.Index.Node(key)
	if err != nil || !node.Exists() {
		return err
	}
	status, err := w.Index.Status(key)
	if err != nil {
		return err
	}
	if pause, differ := w.taintsDiffer(s, key, node.Value, status.Value); differ {
		w.tasks.AddAfter(task{taskTaints, key}, pause)
	}
	if stored := status.Value.Ready; same(stored, s.ready(key, stored, noTime)) {
		return nil
	}
	if !w.readies.Allow() { // a cluster's Nodes can change without end
		subscription, _, _ := strings.Cut(w.key, "/")
		used, _ := w.Index.Used(subscription)
		w.readies.SetLimit(max(readyRate, rate.Limit(used.Nodes)/readyShare))
		w.tasks.AddAfter(task{taskReadiness, key}, store.Jitter(readyPause))
		return nil
	}
	ahead := []string{w.Store.Nodes.Key(key), w.Store.Status.Key(key)}
	return w.update(ctx, "Nodes noted", ahead, func(v *store.View) error {
		node, row := w.Store.Nodes.Row(v, key), w.Store.Status.Row(v, key)
		ready := s.ready(key, row.Value.Ready, time.Now().UTC().Truncate(time.Second))
		if !node.Exists() || same(row.Value.Ready, ready) { // it was deleted or written meanwhile
			return nil
		}
		seen, c := s.node(flexnode.LastOf(key)), claimOf(node.Value, row.Value)
		if seen != nil && !s.other(seen) && c.first {
			c.has = taintsIn(seen.taints.Value())
			row.Value.Taints = inOrder(c.known, filtered(c.want, c.on))
		}
		row.Value.Ready = ready
		return w.Store.Status.Put(v, key, row.Value)
	})
}

// ready returns the present Ready condition of a node; known is the stored one. It is Unknown for a
// Node that is gone, and nil for one that never existed.
func (s *session) ready(key string, known *api.Condition, now time.Time) *api.Condition {
	node := s.node(flexnode.LastOf(key))
	switch {
	case node != nil && node.foreign && s.other(node):
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
	x := *a
	x.LastTransitionTime = b.LastTransitionTime
	return x == *b && a.LastTransitionTime.Equal(b.LastTransitionTime)
}
