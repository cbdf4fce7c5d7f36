package cluster

import (
	"context"
	"log/slog"
	"sync"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// outstanding are the states of the credentials of a cluster that have not ended, by key.
type outstanding struct{ states sync.Map }

// is reports whether a credential is in a state.
func (o *outstanding) is(key, state string) bool {
	known, _ := o.states.Load(key)
	return known == state
}

// count returns the number of credentials in a state.
func (o *outstanding) count(state string) (n int) {
	for _, known := range o.states.Range {
		if known == state {
			n++
		}
	}
	return n
}

// followCredentials queues each credential of the cluster when it has changed and when its time has
// come.
func (w *worker) followCredentials(ctx context.Context) {
	w.outstanding.states.Clear()
	w.Store.Credentials.Sync(ctx, w.key+"/", w.seeCredential, nil, func(err error) {
		w.log.Warn("cannot follow the credentials", slog.Any("error", err))
	})
}

// seeCredential queues a credential for now, or for when its time has come.
func (w *worker) seeCredential(r store.Row[store.Credential]) {
	if !r.Exists() {
		w.outstanding.states.Delete(r.Key)
		return
	}
	c := r.Value
	w.outstanding.states.Store(r.Key, c.State)
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
