package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// seenShards is how many rows each replica has.
	seenShards = 64
	// seenRound is within what time what has changed is written.
	seenRound = 5 * time.Minute
	// seenRenew is after what time a row is written that has not changed, so that the others know
	// that its replica lives; seenGone is after what time they take it over.
	seenRenew = 12 * time.Hour
	seenGone  = 24 * time.Hour
	// seenSweep is how often nodes that are no more are forgotten.
	seenSweep = time.Hour
	// seenAhead is how far a replica's clock may be ahead of this one's: what is said of a later
	// time is left out, or a node would count as heard of until then.
	seenAhead = 5 * time.Minute
)

// Seen knows when the agent of each node was last heard of, by any replica. It is kept apart from
// the nodes' state: each replica writes what it has heard last in a few packed rows, and its index
// tells it those of the others. Nodes go by a hash of their uid: one that was deleted and made
// again was never seen.
type Seen struct {
	// Now is the clock.
	Now func() time.Time

	store   *Store
	index   *Index
	replica string
	shards  [seenShards]seenShard
}

// seenShard is the nodes whose hash begins with its number.
type seenShard struct {
	mu    sync.Mutex
	nodes map[uint64]heard
	// changed tells that the row is to be written, written when it was, in minutes.
	changed bool
	written uint32
	// others are the rows of other replicas, by name, with when they were written.
	others map[string]uint32
}

// heard is a time in minutes, and whether this replica's row has it.
type heard struct {
	minutes uint32
	own     bool
}

// NewSeen is that of a replica. It is made before the index is loaded, which tells it all rows.
func NewSeen(s *Store, x *Index, replica string) *Seen {
	seen := &Seen{Now: time.Now, store: s, index: x, replica: replica}
	for i := range seen.shards {
		seen.shards[i].nodes = map[uint64]heard{}
		seen.shards[i].others = map[string]uint32{}
	}
	x.seen = seen.merge
	return seen
}

func seenHash(uid string) uint64 {
	sum := sha256.Sum256([]byte(uid))
	return binary.BigEndian.Uint64(sum[:])
}

func (s *Seen) shard(hash uint64) *seenShard { return &s.shards[hash>>58] }

func minutes(t time.Time) uint32 { return uint32(max(t.Unix()/60, 0)) }

// Note takes down that the agent of a node was heard of. A node that the index does not know yet is
// left out.
func (s *Seen) Note(nodeKey string, now time.Time) {
	uid, ok := s.index.uid(nodeKey)
	if !ok {
		return
	}
	hash, at := seenHash(uid), minutes(now)
	shard := s.shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.nodes[hash].minutes < at {
		shard.nodes[hash], shard.changed = heard{at, true}, true
	}
}

// Last is when the agent of a node was last heard of, to a minute; zero if never.
func (s *Seen) Last(nodeKey string) time.Time {
	uid, ok := s.index.uid(nodeKey)
	if !ok {
		return time.Time{}
	}
	hash := seenHash(uid)
	shard := s.shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	h, ok := shard.nodes[hash]
	if !ok {
		return time.Time{}
	}
	return time.Unix(int64(h.minutes)*60, 0).UTC()
}

// Run writes what has changed, spread over five minutes, until ctx ends.
func (s *Seen) Run(ctx context.Context, say func(error)) {
	swept := s.Now()
	for i := rand.IntN(seenShards); ; i++ { // replicas do not write the same shard at once
		Pause(ctx, seenRound/seenShards)
		if ctx.Err() != nil {
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

// Flush writes what has changed, all at once: at the end of the program.
func (s *Seen) Flush(ctx context.Context) error {
	var failed error
	for i := range s.shards {
		failed = errors.Join(failed, s.flush(ctx, i))
	}
	return failed
}

// flush writes a shard if it has changed, if its row is old, or if a row of a replica that is gone
// is to be taken over.
func (s *Seen) flush(ctx context.Context, i int) error {
	shard, now := &s.shards[i], minutes(s.Now())
	shard.mu.Lock()
	gone := shard.gone(now)
	due := shard.changed || len(gone) > 0 ||
		shard.written != 0 && now-shard.written >= uint32(seenRenew/time.Minute)
	own := shard.own()
	shard.changed = shard.changed && !due
	shard.mu.Unlock()
	if !due {
		return nil
	}
	taken, err := s.write(ctx, i, now, own, gone)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if err != nil {
		shard.changed = true
		return fmt.Errorf("cannot write when nodes were seen: %w", err)
	}
	shard.written = now
	for _, name := range gone {
		delete(shard.others, name)
	}
	for hash, at := range taken {
		if h := shard.nodes[hash]; h.minutes <= at {
			shard.nodes[hash] = heard{at, true}
		}
	}
	return nil
}

// write writes a shard's row, with what only rows of replicas that are gone have, and deletes
// those.
func (s *Seen) write(
	ctx context.Context, i int, now uint32, own map[uint64]uint32, gone []string,
) (taken map[uint64]uint32, err error) {
	_, err = s.store.Update(ctx, "seen", nil, func(v *View) error {
		taken = map[uint64]uint32{}
		for _, name := range gone {
			kv, err := v.get(seenKey(name, i))
			if err != nil {
				return err
			}
			if kv.Revision == 0 {
				continue
			}
			_, rows := unpackSeen(kv.Value)
			s.shards[i].newest(rows, taken)
			v.write(Write{Key: seenKey(name, i), Delete: true})
		}
		all := map[uint64]uint32{}
		for _, some := range []map[uint64]uint32{own, taken} {
			for hash, at := range some {
				all[hash] = max(all[hash], at)
			}
		}
		mine := Write{Key: seenKey(s.replica, i), Value: packSeen(now, all), Delete: len(all) == 0}
		_, err := v.get(mine.Key) // a store that is crowded takes what is no larger
		v.write(mine)
		return err
	})
	return taken, err
}

func seenKey(replica string, shard int) string {
	return fmt.Sprintf("%s%s/%s/%02d", indexed, seenTable, replica, shard)
}

// gone are the replicas that have not written for long; the caller holds the lock.
func (d *seenShard) gone(now uint32) (names []string) {
	for name, at := range d.others {
		if now > at && now-at >= uint32(seenGone/time.Minute) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// own is what this replica's row has; the caller holds the lock.
func (d *seenShard) own() map[uint64]uint32 {
	own := map[uint64]uint32{}
	for hash, h := range d.nodes {
		if h.own {
			own[hash] = h.minutes
		}
	}
	return own
}

// newest adds to taken those times that no later one is known of.
func (d *seenShard) newest(rows, taken map[uint64]uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for hash, at := range rows {
		// One that is not known any more was swept: its node is gone.
		if h, known := d.nodes[hash]; known && at >= h.minutes {
			taken[hash] = max(taken[hash], at)
		}
	}
}

// sweep forgets the nodes that the index does not have.
func (s *Seen) sweep() {
	var live []uint64
	s.index.snapshot.Load().nodes.Ascend(func(i item[*entry]) bool {
		if i.value.nodeAt != 0 {
			live = append(live, seenHash(i.value.uid()))
		}
		return true
	})
	slices.Sort(live)
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		for hash, h := range shard.nodes {
			if _, ok := slices.BinarySearch(live, hash); !ok {
				delete(shard.nodes, hash)
				shard.changed = shard.changed || h.own
			}
		}
		shard.mu.Unlock()
	}
}
