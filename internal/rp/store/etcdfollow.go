package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// followers counts what follows in this process: each has a connection's stream of its own, so that
// one that is behind does not keep the others from hearing how far the store is.
type followers struct{ n atomic.Int64 }

// progress is the time between Follow's requests to etcd for its revision.
const progress = 5 * time.Second

// Follow implements Backend.
func (e *Etcd) Follow(ctx context.Context, prefix string, after int64, see func(Batch)) error {
	ctx, cancel := context.WithCancel(e.own(ctx))
	defer cancel()
	changes := e.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithProgressNotify())
	tick := time.NewTicker(progress)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := e.client.RequestProgress(ctx); err != nil {
				return fmt.Errorf("cannot follow the store: %w", err)
			}
		case got, open := <-changes:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !open {
				return errors.New("cannot follow the store: the watch has ended")
			}
			if err := translate(got.Err()); err != nil {
				return fmt.Errorf("cannot follow the store: %w", err)
			}
			see(batch(got))
		}
	}
}

// own gives a watch a stream of its own, which ends when its member has no leader.
func (e *Etcd) own(ctx context.Context) context.Context {
	n := fmt.Sprint(e.followers.n.Add(1))
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "flexnode-follower", n)
}

// batch returns the events of a watch. Its header is of no use while there are changes: a watch
// that is behind receives a thousand revisions at a time, with the store's present revision in
// each.
func batch(got clientv3.WatchResponse) Batch {
	b := Batch{Revision: got.Header.Revision}
	for _, e := range got.Events {
		b.Revision = e.Kv.ModRevision
		b.Events = append(b.Events, Event{
			KV:      valueOf(e.Kv),
			Deleted: e.Type == clientv3.EventTypeDelete,
		})
	}
	return b
}
