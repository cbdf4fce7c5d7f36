package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// seenShards is the number of rows.
	seenShards = 64
	// seenRound is the time within which changes are written.
	seenRound = 5 * time.Minute
	// seenSweep is the time between removals of nodes that do not exist any more.
	seenSweep = time.Hour
	// seenAhead limits the lead of a replica's clock over this one's: later times are ignored, or a
	// node would count as heard of until then.
	seenAhead = 5 * time.Minute
	// agentAge is the time since its last contact for which a node counts as polling.
	agentAge = 2 * time.Hour
)

// Seen holds the time of the last contact of each node's agent with any replica. It is not part of
// the nodes' state: replicas write these times into a few packed rows, and read the others' from
// their indexes. Nodes are identified by a hash of their uid: one that was deleted and made again
// was never seen.
type Seen struct {
	// Now is the clock.
	Now func() time.Time

	store *Store
	index *Index

	mu     sync.Mutex
	shards [seenShards]map[uint64]heard // nodes whose hash begins with the number
}

// heard is a time in minutes, 0 for a deleted node, and whether it must still be written.
type heard struct {
	minutes uint32
	news    bool
}

// NewSeen returns a Seen for an index, which must be loaded after that.
func NewSeen(s *Store, x *Index) *Seen {
	seen := &Seen{Now: time.Now, store: s, index: x}
	for i := range seen.shards {
		seen.shards[i] = map[uint64]heard{}
	}
	x.seen = seen.merge
	return seen
}

func seenHash(uid string) uint64 {
	sum := sha256.Sum256([]byte(uid))
	return binary.BigEndian.Uint64(sum[:])
}

func (s *Seen) shard(hash uint64) map[uint64]heard { return s.shards[hash>>58] }

func seenKey(shard int) string { return fmt.Sprintf("%s%s/%02d", indexed, seenTable, shard) }

func minutes(t time.Time) uint32 { return uint32(max(t.Unix()/60, 0)) }

// Note records that the agent of a node was heard of. It ignores a node that the index does not
// have yet.
func (s *Seen) Note(nodeKey string, now time.Time) {
	uid := s.index.entry(nodeKey).uid
	if uid == "" {
		return
	}
	hash, at := seenHash(uid), minutes(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	shard, latest := s.shard(hash), minutes(now.Add(seenAhead))
	if was := shard[hash].minutes; was < at || was > latest { // this clock may have been ahead
		shard[hash] = heard{at, true}
	}
}

// Last returns the time of the last contact of a node's agent, to the minute; zero for never.
func (s *Seen) Last(nodeKey string) time.Time {
	hash := seenHash(s.index.entry(nodeKey).uid) // of "" it has none
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shard(hash)[hash]
	if h.minutes == 0 {
		return time.Time{}
	}
	return time.Unix(int64(h.minutes)*60, 0).UTC()
}

// Share returns the number of nodes for each of so many replicas, if the nodes that were lately
// heard of are spread evenly.
func (s *Seen) Share(replicas int) int {
	polled, nodes := minutes(s.Now().Add(-agentAge)), 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shard := range s.shards {
		for _, h := range shard {
			if h.minutes >= polled {
				nodes++
			}
		}
	}
	replicas = max(replicas, 1)
	return (nodes + replicas - 1) / replicas
}

// Run writes changes, spread over five minutes, until ctx ends.
func (s *Seen) Run(ctx context.Context, say func(error)) {
	swept := s.Now()
	for i := rand.IntN(seenShards); ; i++ { // replicas do not write the same shard at once
		if !Pause(ctx, seenRound/seenShards) {
			return
		}
		if err := s.flush(ctx, i%seenShards); err != nil && ctx.Err() == nil {
			say(err)
		}
		if s.Now().Sub(swept) >= seenSweep && s.index.Revision() != 0 {
			swept = s.Now()
			s.sweep()
		}
	}
}

// Flush writes all changes at once, at the end of the program.
func (s *Seen) Flush(ctx context.Context) error {
	var failed error
	for i := range s.shards {
		failed = errors.Join(failed, s.flush(ctx, i))
	}
	return failed
}

func (s *Seen) flush(ctx context.Context, i int) error {
	shard, news := s.shards[i], map[uint64]uint32{}
	s.mu.Lock()
	for hash, h := range shard {
		if h.news {
			news[hash] = h.minutes
		}
	}
	s.mu.Unlock()
	if len(news) == 0 {
		return nil
	}
	if err := s.write(ctx, seenKey(i), news); err != nil {
		return fmt.Errorf("cannot write when nodes were seen: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, at := range news {
		switch {
		case shard[hash].minutes != at: // heard of again meanwhile
		case at == 0:
			delete(shard, hash)
		default:
			shard[hash] = heard{minutes: at}
		}
	}
	return nil
}

// write merges changes into a row, which also has those of other replicas.
func (s *Seen) write(ctx context.Context, key string, news map[uint64]uint32) error {
	latest := minutes(s.Now().Add(seenAhead))
	_, err := s.store.Update(ctx, "seen", []string{key}, func(v *View) error {
		kv, err := v.get(key)
		if err != nil {
			return err
		}
		row := unpackSeen(kv.Value)
		for hash, at := range news {
			if was := row[hash]; at == 0 {
				delete(row, hash)
			} else if was < at || was > latest {
				row[hash] = at
			}
		}
		v.write(Write{Key: key, Value: packSeen(row), Delete: len(row) == 0})
		return nil
	})
	return err
}

// sweep removes the nodes that the index does not have.
func (s *Seen) sweep() {
	live := map[uint64]bool{}
	s.index.nodes("", "", func(e *entry) bool {
		live[seenHash(e.uid)] = true
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shard := range s.shards {
		for hash := range shard {
			if !live[hash] {
				shard[hash] = heard{0, true}
			}
		}
	}
}

// merge receives each row from the index; an empty one was deleted.
func (s *Seen) merge(key string, row []byte) {
	i, err := strconv.Atoi(key)
	if err != nil || i < 0 || i >= seenShards {
		return // of another program
	}
	shard, latest := s.shards[i], minutes(s.Now().Add(seenAhead))
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, at := range unpackSeen(row) {
		if hash>>58 == uint64(i) && at <= latest && shard[hash].minutes < at {
			shard[hash] = heard{minutes: at}
		}
	}
}

// seenItemSize is the size of a node in a row: the hash of its uid in 8 bytes, and the time of its
// last contact, in minutes since 1970, in 4; sorted by hash, big-endian.
const seenItemSize = 12

func packSeen(nodes map[uint64]uint32) []byte {
	row := make([]byte, 0, len(nodes)*seenItemSize)
	for _, hash := range slices.Sorted(maps.Keys(nodes)) {
		row = binary.BigEndian.AppendUint64(row, hash)
		row = binary.BigEndian.AppendUint32(row, nodes[hash])
	}
	return row
}

// unpackSeen reads a row; it ignores a truncated item.
func unpackSeen(row []byte) map[uint64]uint32 {
	nodes := make(map[uint64]uint32, len(row)/seenItemSize)
	for ; len(row) >= seenItemSize; row = row[seenItemSize:] {
		nodes[binary.BigEndian.Uint64(row)] = binary.BigEndian.Uint32(row[8:])
	}
	return nodes
}
