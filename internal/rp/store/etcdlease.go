package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/lease"
	"google.golang.org/grpc"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// etcdLease is a Lease. etcd counts its time from when it has heard of it, which is after we have
// asked: so until the ttl after the last question that was answered, it has not ended there.
type etcdLease struct {
	etcd   *Etcd
	id     clientv3.LeaseID
	ttl    time.Duration
	until  atomic.Pointer[time.Time]
	stop   context.CancelFunc
	done   chan struct{}
	closed sync.Once
}

// Lease implements Backend. etcd's leases are of whole seconds, at least two: it may outlast ttl,
// and is not relied upon longer than that.
func (e *Etcd) Lease(ctx context.Context, ttl time.Duration) (Lease, error) {
	asked := time.Now()
	seconds := int64((ttl + time.Second - 1) / time.Second)
	granted, err := e.client.Grant(ctx, seconds)
	if err != nil {
		return nil, fmt.Errorf("cannot get a lease of the store: %w", translate(err))
	}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	l := &etcdLease{etcd: e, id: granted.ID, ttl: ttl, stop: stop, done: make(chan struct{})}
	l.extend(asked)
	go l.keep(keep)
	return l, nil
}

// ID implements Lease.
func (l *etcdLease) ID() int64 { return int64(l.id) }

// Done implements Lease.
func (l *etcdLease) Done() <-chan struct{} { return l.done }

// Until implements Lease.
func (l *etcdLease) Until() time.Time { return *l.until.Load() }

func (l *etcdLease) extend(asked time.Time) { l.until.Store(new(asked.Add(l.ttl))) }

// keep asks for more time three times in a ttl, and more often while that fails, until the lease is
// closed, has ended, or may have ended because etcd does not answer.
func (l *etcdLease) keep(ctx context.Context) {
	defer close(l.done)
	pause := l.ttl / 3
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		asked := time.Now()
		deadline, cancel := context.WithDeadline(ctx, l.Until())
		err := l.renew(deadline)
		cancel()
		switch {
		case err == nil:
			l.extend(asked)
			pause = l.ttl / 3
		case errors.Is(err, kv.ErrNoLease), !time.Now().Before(l.Until()):
			return
		default:
			pause = l.ttl / 20
		}
	}
}

// renew asks once. The client's own KeepAliveOnce asks again and again without a pause while there
// is no connection.
func (l *etcdLease) renew(ctx context.Context) error {
	if l.etcd.server != nil {
		_, err := l.etcd.server.Server.LeaseRenew(ctx, lease.LeaseID(l.id))
		if errors.Is(err, lease.ErrLeaseNotFound) {
			return kv.ErrNoLease
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	remote := etcdserverpb.NewLeaseClient(l.etcd.client.ActiveConnection())
	stream, err := remote.LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && answer.TTL <= 0 {
		return kv.ErrNoLease
	}
	return err
}

// Close implements Lease: what was written with it vanishes at once, or, if etcd does not answer,
// when its time is over.
func (l *etcdLease) Close() error {
	var err error
	l.closed.Do(func() {
		l.stop()
		<-l.done
		ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
		defer cancel()
		_, err = l.etcd.client.Revoke(ctx, l.id)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = nil
		}
	})
	if err != nil {
		return fmt.Errorf("cannot give a lease of the store back: %w", err)
	}
	return nil
}

const revokeTimeout = 3 * time.Second
