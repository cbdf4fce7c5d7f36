package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdLease is a Lease. etcd counts its time from when it has heard of it, which is after we have
// asked: so until the ttl after the last question that was answered, it has not ended there.
type etcdLease struct {
	client *clientv3.Client
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
	l := &etcdLease{
		client: e.client, id: granted.ID, ttl: ttl, stop: stop, done: make(chan struct{}),
	}
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

func (l *etcdLease) extend(asked time.Time) {
	until := asked.Add(l.ttl)
	l.until.Store(&until)
}

// keep asks for more time three times in a ttl, until the lease is closed, has ended, or may have
// ended because etcd does not answer.
func (l *etcdLease) keep(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(l.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		deadline, cancel := context.WithDeadline(ctx, l.Until())
		_, err := l.client.KeepAliveOnce(deadline, l.id)
		cancel()
		switch {
		case err == nil:
			l.extend(asked)
		case errors.Is(err, rpctypes.ErrLeaseNotFound), !time.Now().Before(l.Until()):
			return
		}
	}
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
		_, err = l.client.Revoke(ctx, l.id)
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
