package cluster

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// readiness are the nodes of which the Ready condition is to be compared with what is stored.
type readiness struct {
	mu    sync.Mutex
	nodes map[string]bool
	all   bool
	wake  chan struct{}
}

// note has a node be compared.
func (r *readiness) note(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[string]bool{}
	}
	r.nodes[key] = true
	r.ring()
}

// noteAll has all nodes be compared.
func (r *readiness) noteAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = true
	r.ring()
}

func (r *readiness) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// ringAgain has what was noted be compared later.
func (r *readiness) ringAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring()
}

// take is what is to be compared.
func (r *readiness) take() (nodes []string, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes, all = slices.Sorted(maps.Keys(r.nodes)), r.all
	r.nodes, r.all = nil, false
	return nodes, all
}

const (
	// readinessPause gathers changes, so that they are written together.
	readinessPause = 500 * time.Millisecond
	// readinessBatch is how many nodes are written, and noted again together when that fails. An
	// embedded etcd keeps what it was told in the last hundred requests.
	readinessBatch = 10
)

// keepReadiness keeps the Ready condition of the cluster's nodes, until ctx ends.
func (w *worker) keepReadiness(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-w.readiness.wake:
		}
		store.Pause(ctx, readinessPause)
		if s, err := w.use(); err == nil && s.nodesKnown.Load() {
			w.compareReadiness(ctx, s)
			continue
		}
		store.Pause(ctx, readinessPause)
		w.readiness.ringAgain()
	}
}

// compareReadiness writes the Ready conditions that are other than stored, in batches.
func (w *worker) compareReadiness(ctx context.Context, s *session) {
	nodes, all := w.readiness.take()
	if all {
		var err error
		if nodes, err = w.nodesOf(); err != nil {
			w.log.Warn("cannot compare the Nodes", slog.Any("error", err))
			w.readiness.noteAll()
			return
		}
	}
	var changed []string
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
	for batch := range slices.Chunk(changed, readinessBatch) {
		if err := w.writeReadiness(ctx, s, batch); err != nil && ctx.Err() == nil {
			w.log.Warn("cannot write the state of Nodes", slog.Any("error", err))
			for _, key := range batch {
				w.readiness.note(key)
			}
			store.Pause(ctx, firstPause)
		}
	}
}

// nodesOf are the keys of all nodes of the cluster.
func (w *worker) nodesOf() ([]string, error) {
	const page = 1000
	var keys []string
	after := ""
	for {
		rows, more, err := w.Index.Nodes(w.key+"/", after, page)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			keys = append(keys, r.Key)
			after = r.Key
		}
		if !more {
			return keys, nil
		}
	}
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
	found, there, err := s.nodes.GetByKey(flexnode.LastOf(key))
	node, ok := found.(*seenNode)
	switch {
	case err != nil:
		return known
	case there && ok && node.whose == foreign:
		if known != nil && known.Reason == flexnode.NodeForeign {
			return known
		}
		return flexnode.ForeignNode(now)
	case there && ok:
		return node.condition()
	case known == nil || known.Reason == flexnode.NodeNotFound:
		return known
	}
	return flexnode.NodeMissing(now)
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

// writeReadiness writes the Ready conditions of some nodes together. A node that is deleted
// meanwhile gets no status again.
func (w *worker) writeReadiness(ctx context.Context, s *session, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	_, err := w.Store.UpdateEach(ctx, keys, store.Each{
		What: "Nodes noted",
		Ahead: func(key string) []string {
			return []string{w.Store.Nodes.Key(key), w.Store.Status.Key(key)}
		},
		One: func(v *store.View, key string) error {
			v.Fence(w.owner.Fence())
			return w.putReady(v, s, key)
		},
	})
	return err
}

func (w *worker) putReady(v *store.View, s *session, key string) error {
	node, err := w.Store.Nodes.In(v, key)
	if err != nil || !node.Exists() {
		return err
	}
	row, err := w.Store.Status.In(v, key)
	if err != nil {
		return err
	}
	ready := s.ready(key, row.Value.Ready, w.Now().UTC().Truncate(time.Second))
	if same(row.Value.Ready, ready) {
		return nil
	}
	next := row.Value
	next.Ready = ready
	if seen := s.node(key); seen != nil && !seen.other() && isFirst(row.Value.Ready) {
		c := claim{want: flexnode.Taints(node.Value.Desired), known: row.Value.Taints,
			has: taintsIn(seen.taints())}
		next.Taints = inOrder(c.known, filtered(c.want, c.on))
	}
	return w.Store.Status.Put(v, key, next)
}
