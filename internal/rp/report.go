package rp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// reportStatus takes what an agent says of its node. It does not touch the desired configuration.
func (s *Server) reportStatus(w http.ResponseWriter, r *request) error {
	var report api.Report
	if err := decode(r.body, &report); err != nil {
		return err
	}
	if problems := checkReport(report); len(problems) > 0 {
		return refuse(problems)
	}
	node, err := s.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err != nil {
		return err
	}
	if !node.Exists() {
		if _, err := s.parent(r.Context(), r); err != nil {
			return err
		}
		return s.notFound(r.Context(), r)
	}
	err = s.changeStatus(r.Context(), node, func(st *store.Status) bool {
		st.Report, st.Seen = report, s.Now().Unix()
		return true
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// changeStatus changes what is said of a node that is there.
func (s *Server) changeStatus(ctx context.Context, node store.Row[store.Node], change func(*store.Status) bool) error {
	for range tries {
		row, err := s.Store.Status.Get(ctx, node.Key)
		if err != nil {
			return err
		}
		next := row.Value
		if !change(&next) {
			return nil
		}
		txn := s.Store.Txn()
		s.Store.Status.Put(txn, row, next)
		if !row.Exists() { // a node that is being deleted gets no status
			s.Store.Nodes.Unchanged(txn, node)
		}
		if _, err = s.commit(ctx, "status written", txn); !errors.Is(err, store.ErrConflict) {
			return err
		}
		if node, err = s.Store.Nodes.Get(ctx, node.Key); err != nil || !node.Exists() {
			return err
		}
	}
	return busy()
}

const (
	maxConditions = 32
	maxText       = 1024
)

func checkReport(report api.Report) []problem {
	var problems []problem
	add := func(target, format string, args ...any) {
		problems = append(problems, problem{target, fmt.Sprintf(format, args...)})
	}
	if len(report.Conditions) > maxConditions {
		add("conditions", "There are %d conditions; at most %d are kept.", len(report.Conditions), maxConditions)
	}
	if !matches(`[0-9]{0,19}`, report.AppliedConfigVersion) {
		add("appliedConfigVersion", "This is not a configVersion.")
	}
	if len(report.AgentVersion) > 64 {
		add("agentVersion", "This is longer than 64 characters.")
	}
	for i, c := range report.Conditions {
		at := fmt.Sprintf("conditions[%d].", i)
		if !matches(`[A-Za-z]([A-Za-z0-9]{0,62})?`, c.Type) {
			add(at+"type", "A condition's type is 1 to 63 letters and digits, a letter first.")
		}
		if !slices.Contains([]string{"True", "False", "Unknown"}, c.Status) {
			add(at+"status", "A condition's status is True, False or Unknown.")
		}
		if len(c.Reason) > maxText || len(c.Message) > maxText {
			add(at+"message", "Reason and message have at most %d characters.", maxText)
		}
	}
	return problems
}

// seen is when nodes have last polled, in Unix seconds. It is kept in memory, because a poll must cost the store nothing, and flushed from
// time to time.
type seen struct {
	shards [64]seenShard
}

type seenShard struct {
	mu    sync.Mutex
	times map[string]int64
}

func (s *seen) shard(key string) *seenShard {
	h := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return &s.shards[h%uint32(len(s.shards))]
}

func (s *seen) note(key string, now time.Time) {
	shard := s.shard(key)
	shard.mu.Lock()
	if shard.times == nil {
		shard.times = map[string]int64{}
	}
	shard.times[key] = now.Unix()
	shard.mu.Unlock()
}

func (s *seen) last(key string) int64 {
	shard := s.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.times[key]
}

// take empties a shard.
func (s *seen) take(i int) map[string]int64 {
	shard := &s.shards[i]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	times := shard.times
	shard.times = nil
	return times
}

// FlushInterval is how old what is stored of last-seen times may be.
const FlushInterval = 5 * time.Minute

// batch is how many rows one transaction of a flush writes (etcd allows 128 operations).
const batch = 100

// FlushSeen stores when nodes were last seen. Rows that change meanwhile are left to the next flush.
func (s *Server) FlushSeen(ctx context.Context) error {
	var errs []error
	for i := range s.seen.shards {
		times := s.seen.take(i)
		keys := make([]string, 0, len(times))
		for key := range times {
			keys = append(keys, key)
		}
		for chunk := range slices.Chunk(keys, batch) {
			if err := s.flush(ctx, chunk, times); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Server) flush(ctx context.Context, keys []string, times map[string]int64) error {
	txn := s.Store.Txn()
	for _, key := range keys {
		if _, there := s.Index.Poll(key); !there {
			continue
		}
		row, err := s.Index.Status(key)
		if err != nil {
			return err
		}
		next := row.Value
		next.Seen = max(next.Seen, times[key])
		s.Store.Status.Put(txn, row, next)
	}
	_, err := txn.Commit(ctx)
	if err == nil {
		return nil
	}
	for _, key := range keys {
		if last := time.Unix(times[key], 0); s.seen.last(key) == 0 {
			s.seen.note(key, last)
		}
	}
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}
