package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// memoryLease is both sides of a lease of a Memory: the database's, which ends it if it was not
// renewed for longer than ttl, and its holder's, which renews it.
type memoryLease struct {
	m    *Memory
	id   int64
	ttl  time.Duration
	done chan struct{}
	lose func() // closes done

	// Guarded by memoryDB.mu.
	until  time.Time
	timers []*time.Timer
	ended  bool
}

// Lease implements Backend. ctx is for its creation; the lease is renewed until it is closed.
func (m *Memory) Lease(ctx context.Context, ttl time.Duration) (kv.Lease, error) {
	if err := m.begin(ctx, Call{Op: "lease"}); err != nil {
		return nil, err
	}
	db := m.db
	db.mu.Lock()
	defer db.mu.Unlock()
	db.lastLease++
	done := make(chan struct{})
	l := &memoryLease{m: m, id: db.lastLease, ttl: ttl, done: done,
		lose: sync.OnceFunc(func() { close(done) })}
	db.leases[l.id] = l
	l.renew()
	return l, nil
}

// ID implements Lease.
func (l *memoryLease) ID() int64 { return l.id }

// Done implements Lease.
func (l *memoryLease) Done() <-chan struct{} { return l.done }

// Until implements Lease.
func (l *memoryLease) Until() time.Time {
	l.m.db.mu.Lock()
	defer l.m.db.mu.Unlock()
	return l.until
}

// renew starts the time of the lease again; the caller holds the lock.
func (l *memoryLease) renew() {
	l.until = time.Now().Add(l.ttl)
	l.halt()
	l.timers = []*time.Timer{time.AfterFunc(l.ttl/3, l.keep), time.AfterFunc(l.ttl, l.expire)}
}

func (l *memoryLease) halt() {
	for _, timer := range l.timers {
		timer.Stop()
	}
	l.timers = nil
}

// keep renews the lease for its holder. It waits while the holder is paused, and retries after an
// error until the lease's time is over.
func (l *memoryLease) keep() {
	err := l.m.begin(context.Background(), Call{Op: "keep"})
	db := l.m.db
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case l.ended:
		l.lose()
	case err == nil:
		l.renew()
	case l.m.knob.dead():
	default:
		l.timers = append(l.timers, time.AfterFunc(l.ttl/10, l.keep))
	}
}

// expire ends the lease in the database. Its holder sees that by its own clock, unless it is
// paused.
func (l *memoryLease) expire() {
	db := l.m.db
	db.mu.Lock()
	l.end()
	db.mu.Unlock()
	if l.m.knob.wait(context.Background()) == nil {
		l.lose()
	}
}

// end deletes the rows of the lease; the caller holds the lock.
func (l *memoryLease) end() {
	if l.ended {
		return
	}
	l.ended = true
	l.halt()
	delete(l.m.db.leases, l.id)
	var writes []kv.Write
	l.m.db.records.Ascend(func(r *record) bool {
		if v, _ := l.m.db.present(r.key); v.lease == l.id {
			writes = append(writes, kv.Write{Key: r.key, Delete: true})
		}
		return true
	})
	l.m.db.write(writes)
}

// Close implements Lease.
func (l *memoryLease) Close() error {
	err := l.m.begin(context.Background(), Call{Op: "revoke"})
	l.m.db.mu.Lock()
	defer l.m.db.mu.Unlock()
	if err != nil { // it expires
		l.halt()
		if !l.ended {
			l.timers = []*time.Timer{time.AfterFunc(time.Until(l.until), l.expire)}
		}
	} else {
		l.end()
	}
	l.lose()
	return err
}
