package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// Call is one call of a connection to a Memory: read, scan, keys, commit, follow, changes (before
// Follow reports changes), lease, keep, revoke, compact or health.
type Call struct {
	Op     string
	Keys   []string // of a read; the prefix of a scan or follow
	Writes []kv.Write
}

// knobs holds the faults of a connection.
type knobs struct {
	mu      sync.Mutex
	before  func(Call) error
	after   func(Call) error
	resumed chan struct{} // closed by Resume; nil when it is not paused
	broken  chan struct{} // closed by Break
	killed  bool
}

// Before sets a function to call before each call of this connection. If it returns an error, the
// call does nothing and returns that. nil removes it.
func (m *Memory) Before(f func(Call) error) {
	m.knob.do(func() { m.knob.before = f })
}

// After sets a function to call after each successful commit of this connection. If it returns an
// error, the commit returns that: its outcome is unknown to the caller.
func (m *Memory) After(f func(Call) error) {
	m.knob.do(func() { m.knob.after = f })
}

// Pause blocks all calls of this connection, as if its process were stopped: its leases are not
// renewed, and it does not see them end.
func (m *Memory) Pause() {
	m.knob.do(func() {
		if m.knob.resumed == nil {
			m.knob.resumed = make(chan struct{})
		}
	})
}

// Resume ends a Pause.
func (m *Memory) Resume() {
	m.knob.do(func() {
		if m.knob.resumed != nil {
			close(m.knob.resumed)
			m.knob.resumed = nil
		}
	})
}

// Break ends each Follow that runs on this connection with an error.
func (m *Memory) Break() {
	m.knob.do(func() {
		close(m.knob.broken)
		m.knob.broken = make(chan struct{})
	})
}

// Kill ends the connection for ever, as if its process were killed: all calls fail, and its leases
// are neither renewed nor closed.
func (m *Memory) Kill() {
	m.knob.do(func() { m.knob.killed = true })
	m.Break()
	m.Resume()
}

// SetQuota makes commits that would grow the values fail with ErrFull; 0 is no quota.
func (m *Memory) SetQuota(bytes int64) {
	m.db.mu.Lock()
	defer m.db.mu.Unlock()
	m.db.quota = bytes
}

// Reads counts the reads and scans of all connections.
func (m *Memory) Reads() int64 { return m.db.reads.Load() }

// Commits counts the commits of all connections, also those with a conflict.
func (m *Memory) Commits() int64 { return m.db.commits.Load() }

func (k *knobs) do(what func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	what()
}

func (k *knobs) dead() (killed bool) {
	k.do(func() { killed = k.killed })
	return killed
}

func (k *knobs) untilBroken() (broken <-chan struct{}) {
	k.do(func() { broken = k.broken })
	return broken
}

// wait waits while the connection is paused.
func (k *knobs) wait(ctx context.Context) error {
	var resumed chan struct{}
	k.do(func() { resumed = k.resumed })
	if resumed != nil {
		select {
		case <-ctx.Done():
		case <-resumed:
		}
	}
	if k.dead() {
		return ErrKilled
	}
	return ctx.Err()
}

var ErrKilled = errors.New("the connection to the store was ended")

// begin runs before each call.
func (m *Memory) begin(ctx context.Context, call Call) error {
	if err := m.knob.wait(ctx); err != nil {
		return err
	}
	return m.knob.call(&m.knob.before, call)
}

// call calls before or after, if it is set.
func (k *knobs) call(which *func(Call) error, call Call) error {
	var f func(Call) error
	if k.do(func() { f = *which }); f == nil {
		return nil
	}
	return f(call)
}

// Copy returns a connection to another database with the present content, as if restored from a
// backup: earlier changes are not kept, and rows with a lease are left out.
func (m *Memory) Copy() *Memory {
	other := NewMemory()
	db := m.db
	db.mu.Lock()
	defer db.mu.Unlock()
	other.db.revision, other.db.compacted = db.revision, db.revision
	db.records.Ascend(func(r *record) bool {
		if v, ok := r.at(db.revision); ok && v.lease == 0 {
			other.db.keep(version{KV: v.KV})
		}
		return true
	})
	return other
}

// Become connects a connection to another database and breaks it: its database was restored from a
// backup.
func (m *Memory) Become(other *Memory) {
	m.db = other.db
	m.Break()
}

// Health implements Backend.
func (m *Memory) Health(ctx context.Context) (kv.Health, error) {
	if err := m.begin(ctx, Call{Op: "health"}); err != nil {
		return kv.Health{}, err
	}
	m.db.mu.Lock()
	defer m.db.mu.Unlock()
	full := m.db.full || m.db.quota != 0 && m.db.size >= m.db.quota
	return kv.Health{Revision: m.db.revision, Size: m.db.size, InUse: m.db.size,
		Quota: m.db.quota, Full: full, Free: 1 << 40}, nil
}

// Close implements Backend. The database remains for other connections.
func (m *Memory) Close() error { return nil }
