package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/lease"
	"google.golang.org/grpc"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// Etcd is a Backend in etcd: one in this process (Open), or a cluster outside it (Dial).
type Etcd struct {
	client *clientv3.Client
	server *embed.Etcd // nil for an external cluster
	lock   *os.File    // of the data directory
	// free returns the free space on the disk of the data directory, in bytes; -1: unknown.
	free func() int64
	full atomic.Bool // set by the last commit

	// patience limits the time of one request.
	patience time.Duration
}

// requestPatience is longer than etcd's own timeout (7 s and its members' elections): a store that
// does not answer must not keep its caller, and the caller's place, for ever.
const requestPatience = 15 * time.Second

var errSilent = errors.New("the store does not answer")

func (e *Etcd) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, e.patience, errSilent)
}

var _ Backend = (*Etcd)(nil)

// Read implements Backend.
func (e *Etcd) Read(ctx context.Context, keys ...string) (map[string]KV, int64, error) {
	if len(keys) > MaxWrites {
		return nil, 0, ErrTooLarge
	}
	if e.server != nil {
		return e.readOwn(ctx, keys...)
	}
	ops := make([]clientv3.Op, 0, len(keys))
	for _, key := range keys {
		ops = append(ops, clientv3.OpGet(key))
	}
	if len(ops) == 0 { // only the revision is needed
		ops = append(ops, clientv3.OpGet(root, clientv3.WithCountOnly()))
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	response, err := e.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, 0, failure(ctx, err)
	}
	got := map[string]KV{}
	for _, r := range response.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			got[string(kv.Key)] = valueOf(kv)
		}
	}
	return got, response.Header.Revision, nil
}

// Commit implements Backend.
func (e *Etcd) Commit(ctx context.Context, conditions []Condition, writes []Write) (int64, error) {
	if len(conditions) > MaxWrites || len(writes) > MaxWrites || kv.Size(writes) > kv.MaxBytes {
		return 0, ErrTooLarge
	}
	// Claims of replicas are small and end with a lease; without them no replica would work on a
	// cluster. The reserve on the disk is for them, too.
	if slices.ContainsFunc(writes, func(w Write) bool { return !w.Delete && w.Lease == 0 }) {
		if err := e.room(); err != nil {
			return 0, err
		}
	}
	compares := make([]clientv3.Cmp, 0, len(conditions))
	for _, c := range conditions {
		compare := clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Revision)
		if c.Empty { // checked for each existing key
			compare = clientv3.Compare(clientv3.CreateRevision(c.Key), "=", 0).WithPrefix()
		}
		compares = append(compares, compare)
	}
	ops := make([]clientv3.Op, 0, len(writes))
	grows := false // a full store takes deletions
	for _, w := range writes {
		if w.Delete {
			ops = append(ops, clientv3.OpDelete(w.Key))
			continue
		}
		grows = true
		lease := clientv3.WithLease(clientv3.LeaseID(w.Lease)) // 0 is none
		ops = append(ops, clientv3.OpPut(w.Key, string(w.Value), lease))
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	response, err := e.client.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err != nil {
		err = failure(ctx, err)
		if errors.Is(err, ErrFull) {
			e.full.Store(true)
		}
		return 0, err
	}
	if !response.Succeeded {
		return 0, ErrConflict
	}
	if grows {
		e.full.Store(false)
	}
	return response.Header.Revision, nil
}

// Scan implements Backend.
func (e *Etcd) Scan(ctx context.Context, prefix, after string, limit int, at int64) (Page, error) {
	got, err := e.scan(ctx, prefix, after, limit, clientv3.WithRev(at))
	if err != nil {
		return Page{}, err
	}
	page := Page{
		More: got.More, Revision: cmp.Or(at, got.Header.Revision), KVs: make([]KV, 0, len(got.Kvs)),
	}
	for _, kv := range got.Kvs {
		page.KVs = append(page.KVs, valueOf(kv))
	}
	return page, nil
}

// Keys implements Backend.
func (e *Etcd) Keys(
	ctx context.Context, prefix, after string, limit int,
) (keys []string, more bool, err error) {
	got, err := e.scan(ctx, prefix, after, limit, clientv3.WithKeysOnly())
	if err != nil {
		return nil, false, err
	}
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, got.More, nil
}

func (e *Etcd) scan(
	ctx context.Context, prefix, after string, limit int, what clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	from := prefix
	if after >= prefix {
		from = after + "\x00"
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	got, err := e.client.Get(ctx, from, e.reading(what, clientv3.WithLimit(int64(limit)),
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)))...)
	if err != nil {
		return nil, failure(ctx, err)
	}
	return got, nil
}

// valueOf converts a value of etcd. The one of a deletion has only a key and a revision.
func valueOf(kv *mvccpb.KeyValue) KV {
	return KV{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
}

// Compact implements Backend. Compactions do not queue up: an external etcd ends this one before it
// answers. The one in this process would do so even after ctx has ended; there, this one is left
// out while another one runs.
func (e *Etcd) Compact(ctx context.Context, revision int64) error {
	wait := []clientv3.CompactOption{clientv3.WithCompactPhysical()}
	if e.server != nil {
		wait = nil
		if begun, ended := e.compactions(); ended < begun && begun < revision {
			return nil
		}
	}
	_, err := e.client.Compact(ctx, revision, wait...)
	return translate(err)
}

// Close implements Backend. It stops an etcd in this process.
func (e *Etcd) Close() error {
	err := e.client.Close()
	if errors.Is(err, context.Canceled) { // the usual error of a closed client
		err = nil
	}
	if e.server == nil {
		return err
	}
	e.server.Close()
	return errors.Join(err, e.lock.Close())
}

// failure returns the error of a request with a context of within.
func failure(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return translate(err)
}

// translate returns the error of a Backend for one of etcd.
func translate(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return ErrCompacted
	case errors.Is(err, rpctypes.ErrNoSpace):
		return ErrFull
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return ErrTooLarge
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return kv.ErrNoLease
	}
	return err
}

// progress is the time between Follow's requests to etcd for its revision.
const progress = 5 * time.Second

// Follow implements Backend.
func (e *Etcd) Follow(ctx context.Context, prefix string, after int64, see func(Batch)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := e.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithProgressNotify())
	tick := time.NewTicker(progress)
	defer tick.Stop()
	for last, quiet := after, true; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if quiet { // a watch reports nothing before the store has passed the revision of its start
				switch _, now, err := e.Read(ctx); {
				case err == nil && now < last:
					return kv.ErrWentBack
				case err == nil && now == last:
					see(Batch{Revision: now})
				}
			}
			quiet = true
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
			b := batch(got)
			last, quiet = b.Revision, false
			if e.server != nil {
				if err := e.awaitOwn(ctx, b.Revision); err != nil {
					return err
				}
			}
			see(b)
		}
	}
}

// batch returns the events of a watch. With changes, the revision of its header cannot be used: a
// watch that is behind receives a thousand revisions at a time, each with the store's present one.
func batch(got clientv3.WatchResponse) Batch {
	b := Batch{Revision: got.Header.Revision}
	for _, e := range got.Events {
		b.Revision = e.Kv.ModRevision
		b.Events = append(b.Events, Event{KV: valueOf(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete})
	}
	return b
}

// etcdLease is a Lease. etcd counts its time from when it receives a request, which is after we
// have sent it: so until ttl after the last answered request was sent, the lease has not ended
// there.
type etcdLease struct {
	etcd   *Etcd
	id     clientv3.LeaseID
	ttl    time.Duration
	until  atomic.Pointer[time.Time]
	stop   context.CancelFunc
	done   chan struct{}
	closed sync.Once
}

// Lease implements Backend. etcd's leases last whole seconds, at least two: one may outlast ttl,
// but its holder does not rely on that.
func (e *Etcd) Lease(ctx context.Context, ttl time.Duration) (Lease, error) {
	asked := time.Now()
	granted, err := e.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
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

// keep renews the lease three times in a ttl, and more often while that fails, until the lease is
// closed, has ended, or may have ended because etcd does not answer.
func (l *etcdLease) keep(ctx context.Context) {
	defer close(l.done)
	pause := l.ttl / 3
	for {
		if !Pause(ctx, pause) {
			return
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

// renew renews once. The client's own KeepAliveOnce retries without a pause while there is no
// connection.
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

// Close implements Lease: rows written with it vanish at once, or, if etcd does not answer, when
// its time is over.
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
