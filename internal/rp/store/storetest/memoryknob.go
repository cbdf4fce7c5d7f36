package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// Call is one call of a connection to a Memory: read, scan, commit, follow, changes (before Follow
// tells what has changed), lease, keep, revoke, snapshot, compact or health.
type Call struct {
	Op         string
	Keys       []string // of a read; the prefix of a scan or follow
	Conditions []kv.Condition
	Writes     []kv.Write
}

// knobs are what can be done to a connection.
type knobs struct {
	mu      sync.Mutex
	before  func(Call) error
	after   func(Call) error
	resumed chan struct{} // closed by Resume; nil when it is not paused
	broken  chan struct{} // closed by Break
	killed  bool
}

// Before has a function called before each call of this connection. If it returns an error then
// nothing is done and the call returns the error. nil ends that.
func (m *Memory) Before(f func(Call) error) {
	m.knob.mu.Lock()
	defer m.knob.mu.Unlock()
	m.knob.before = f
}

// After has a function called after each commit of this connection that was written. If it returns
// an error then the commit returns the error: its outcome is unknown to the caller.
func (m *Memory) After(f func(Call) error) {
	m.knob.mu.Lock()
	defer m.knob.mu.Unlock()
	m.knob.after = f
}

// Pause has all calls of this connection wait, as when its process is stopped: its leases are not
// kept, and it is not told that they have ended.
func (m *Memory) Pause() {
	m.knob.mu.Lock()
	defer m.knob.mu.Unlock()
	if m.knob.resumed == nil {
		m.knob.resumed = make(chan struct{})
	}
}

// Resume ends a Pause.
func (m *Memory) Resume() {
	m.knob.mu.Lock()
	defer m.knob.mu.Unlock()
	if m.knob.resumed != nil {
		close(m.knob.resumed)
		m.knob.resumed = nil
	}
}

// Break ends each Follow that runs on this connection with an error.
func (m *Memory) Break() {
	m.knob.mu.Lock()
	defer m.knob.mu.Unlock()
	if m.knob.broken != nil {
		close(m.knob.broken)
		m.knob.broken = nil
	}
}

// Kill ends the connection for ever, as when its process is killed: all calls fail, leases are not
// kept and not closed.
func (m *Memory) Kill() {
	m.knob.mu.Lock()
	m.knob.killed = true
	m.knob.mu.Unlock()
	m.Break()
	m.Resume()
}

// SetQuota has commits fail with ErrFull that would make the values larger; 0 is no quota.
func (m *Memory) SetQuota(bytes int64) {
	m.db.mu.Lock()
	defer m.db.mu.Unlock()
	m.db.quota = bytes
}

// Reads counts the reads and scans of all connections.
func (m *Memory) Reads() int64 { return m.db.reads.Load() }

// Commits counts the commits of all connections, also those with a conflict.
func (m *Memory) Commits() int64 { return m.db.commits.Load() }

func (k *knobs) dead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.killed
}

func (k *knobs) breaks() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken == nil {
		k.broken = make(chan struct{})
	}
	return k.broken
}

// wait waits while the connection is paused.
func (k *knobs) wait(ctx context.Context) error {
	for {
		k.mu.Lock()
		resumed, killed := k.resumed, k.killed
		k.mu.Unlock()
		if killed {
			return ErrKilled
		}
		if resumed == nil {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-resumed:
		}
	}
}

var ErrKilled = errors.New("the connection to the store was ended")

// begin is before each call.
func (m *Memory) begin(ctx context.Context, call Call) error {
	if err := m.knob.wait(ctx); err != nil {
		return err
	}
	m.knob.mu.Lock()
	before := m.knob.before
	m.knob.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(call)
}

// end is after each commit that was written.
func (m *Memory) end(call Call) error {
	m.knob.mu.Lock()
	after := m.knob.after
	m.knob.mu.Unlock()
	if after == nil {
		return nil
	}
	return after(call)
}

// memoryLine is a line of a snapshot: the first has only the revision.
type memoryLine struct {
	Key      string `json:"key,omitempty"`
	Value    []byte `json:"value,omitempty"`
	Revision int64  `json:"revision"`
	Created  int64  `json:"created,omitempty"`
}

// Snapshot implements Backend: lines of JSON, for RestoreMemory. What was written with a lease is
// left out: its process is gone when the snapshot is restored.
func (m *Memory) Snapshot(ctx context.Context, to io.Writer) error {
	if err := m.begin(ctx, Call{Op: "snapshot"}); err != nil {
		return err
	}
	db := m.db
	db.mu.Lock()
	lines := []memoryLine{{Revision: db.revision}}
	db.records.Ascend(func(r *record) bool {
		if v, ok := r.at(db.revision); ok && v.lease == 0 {
			lines = append(lines, memoryLine(v.KV))
		}
		return true
	})
	db.mu.Unlock()
	encoder := json.NewEncoder(to)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("cannot write the snapshot: %w", err)
		}
	}
	return nil
}

// RestoreMemory makes a Memory of a snapshot. The changes before it are not kept.
func RestoreMemory(from io.Reader) (*Memory, error) {
	m := NewMemory()
	decoder := json.NewDecoder(from)
	for first := true; ; first = false {
		var line memoryLine
		err := decoder.Decode(&line)
		switch {
		case errors.Is(err, io.EOF) && !first:
			return m, nil
		case err != nil:
			return nil, fmt.Errorf("cannot read the snapshot: %w", err)
		case first:
			m.db.revision, m.db.compacted = line.Revision, line.Revision
		default:
			m.db.keep(version{KV: kv.KV(line)})
		}
	}
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
