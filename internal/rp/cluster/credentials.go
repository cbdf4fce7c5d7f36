package cluster

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// outstanding are the credentials of a cluster that have not ended, by node.
type outstanding struct {
	mu     sync.Mutex
	known  map[string]held     // by key
	byNode map[string][]string // keys
}

// held holds what is known of a credential without reading it.
type held struct{ node, state string }

// put takes down what a credential is.
func (o *outstanding) put(key string, h held) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known, o.byNode = map[string]held{}, map[string][]string{}
	}
	if was := o.known[key]; was.node != h.node {
		o.drop(key, was)
		o.byNode[h.node] = append(o.byNode[h.node], key)
	}
	o.known[key] = h
}

// end takes down that a credential has ended.
func (o *outstanding) end(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(key, o.known[key])
	delete(o.known, key)
}

func (o *outstanding) drop(key string, h held) {
	left := slices.DeleteFunc(o.byNode[h.node], func(k string) bool { return k == key })
	if len(left) == 0 {
		delete(o.byNode, h.node)
		return
	}
	o.byNode[h.node] = left
}

// of are the credentials of a node.
func (o *outstanding) of(node string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.byNode[node])
}

// isLive reports whether a credential is Live.
func (o *outstanding) isLive(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[key].state == store.Live
}

// count returns the number of credentials in a state.
func (o *outstanding) count(state string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, h := range o.known {
		if h.state == state {
			n++
		}
	}
	return n
}

// keys are all of them.
func (o *outstanding) keys() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.known))
}

// followCredentials queues each credential of the cluster when it has changed and when its time has
// come.
func (w *worker) followCredentials(ctx context.Context) {
	for ctx.Err() == nil {
		before := w.outstanding.keys()
		seen := map[string]bool{}
		err := w.Store.Credentials.Sync(ctx, w.key+"/", func(r store.Row[store.Credential]) {
			if before != nil {
				seen[r.Key] = true
			}
			w.seeCredential(r)
		}, func() { // what has ended during a break is not told
			for _, key := range before {
				if !seen[key] {
					w.outstanding.end(key)
				}
			}
			before = nil
		})
		if err != nil && ctx.Err() == nil {
			w.log.Warn("cannot follow the credentials", slog.Any("error", err))
			store.Pause(ctx, firstPause)
		}
	}
}

// seeCredential queues a credential for now, or for when its time has come.
func (w *worker) seeCredential(r store.Row[store.Credential]) {
	if !r.Exists() {
		w.outstanding.end(r.Key)
		return
	}
	c := r.Value
	w.outstanding.put(r.Key, held{c.Node, c.State})
	t := task{taskCredential, r.Key}
	node, err := w.Index.Node(c.Node)
	wanted := err == nil && node.Exists() && node.Value.Credential == r.Key
	now := w.Now()
	state, next := credential.Due(c, wanted, now)
	switch {
	// Others have something to be done now; what is Live waits. The step reads again whether it is
	// wanted.
	case c.State != store.Live || state != c.State:
		w.tasks.Add(t)
	case !next.IsZero():
		w.tasks.AddAfter(t, max(0, next.Sub(now)))
	}
}
