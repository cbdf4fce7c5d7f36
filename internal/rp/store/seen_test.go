package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// seer returns the liveness of a replica with an index that follows; it is not running.
func seer(t *testing.T, m *storetest.Memory) (*Seen, *storetest.Memory) {
	its := m.Another()
	s := New(its)
	x := NewIndex(s)
	seen := NewSeen(s, x)
	must(0, x.Load(t.Context()))
	keepUp(t, x)
	t.Cleanup(its.Resume)
	return seen, its
}

func runs(t *testing.T, s *Seen) (stop func()) {
	return background(t, func(ctx context.Context) { s.Run(ctx, func(error) {}) })
}

func flushed(t *testing.T, s *Seen) {
	must(0, s.Flush(t.Context()))
	synctest.Wait()
}

func seenRows(t *testing.T, m *storetest.Memory) (keys []string, size int) {
	page := must(m.Scan(t.Context(), indexed+"seen/", "", 10000, 0))
	for _, kv := range page.KVs {
		keys = append(keys, strings.TrimPrefix(kv.Key, indexed+"seen/"))
		size += len(kv.Value)
	}
	return keys, size
}

// putNodes writes so many nodes, by number.
func putNodes(t *testing.T, m *storetest.Memory, n int) {
	for i := range n {
		putNode(t, New(m), fmt.Sprint("s/g/c/", i), uidNode(fmt.Sprint("u", i)))
	}
	synctest.Wait()
}

func uidNode(uid string) flexnode.Node { return flexnode.Node{ID: "/n", UID: uid} }

func TestSeenByEachReplica(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		a, _ := seer(t, m)
		b, _ := seer(t, m)
		putNode(t, s, "s/g/c/n", uidNode("u1"))
		synctest.Wait()
		equal(t, "before it was seen", a.Last("s/g/c/n"), time.Time{})
		first := time.Now().Truncate(time.Minute).UTC()
		a.Note("s/g/c/n", first.Add(20*time.Second))
		a.Note("s/g/c/none", first)
		equal(t, "when it was seen", a.Last("s/g/c/n"), first)
		flushed(t, a)
		equal(t, "what b knows", b.Last("s/g/c/n"), first)
		later := first.Add(time.Hour)
		time.Sleep(time.Until(later))
		b.Note("s/g/c/n", later)
		flushed(t, b)
		a.Note("s/g/c/n", later.Add(-time.Minute)) // its clock is behind
		flushed(t, a)
		for i, s := range []*Seen{a, b} {
			equal(t, fmt.Sprint("what is known to ", i), s.Last("s/g/c/n"), later)
		}
		again, _ := seer(t, m) // after a restart
		equal(t, "after a restart", again.Last("s/g/c/n"), later)
		equal(t, "a node that is not there", again.Last("s/g/c/none"), time.Time{})
	})
}

// M23: a node that replaced another of its name has not been seen yet.
func TestSeenOfASuccessor(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		a, _ := seer(t, m)
		putNode(t, s, "s/g/c/n", uidNode("u1"))
		synctest.Wait()
		a.Note("s/g/c/n", time.Now())
		dropNode(t, s, "s/g/c/n")
		synctest.Wait()
		flushed(t, a) // of a node that is gone
		equal(t, "rows of the deleted node", len(rowsIn(t, s.Status)), 0)
		putNode(t, s, "s/g/c/n", uidNode("u2"))
		synctest.Wait()
		equal(t, "when the successor was seen", a.Last("s/g/c/n"), time.Time{})
	})
}

// M23: the writes for polls do not grow with the nodes, and are spread over time.
func TestSeenCostsFewWrites(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, _ *Store) {
		a, its := seer(t, m)
		const many = 2000
		putNodes(t, m, many)
		at := map[time.Time]int{}
		its.Before(on("commit", func() { at[time.Now()]++ }))
		runs(t, a)
		poll := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(30 * time.Second) {
				for i := range many {
					a.Note(fmt.Sprint("s/g/c/", i), time.Now())
				}
			}
		}
		poll(seenRound)
		before := m.Commits()
		poll(seenRound)
		if got := m.Commits() - before; got < seenShards-1 || got > seenShards+1 {
			t.Errorf("%d commits in %v", got, seenRound)
		}
		its.Before(nil)
		for when, n := range at {
			if n > 1 {
				t.Errorf("%d commits at %v", n, when)
			}
		}
		if _, size := seenRows(t, m); size > many*seenItemSize {
			t.Errorf("the rows have %d bytes", size)
		}
		time.Sleep(seenRound) // the rest
		before = m.Commits()
		time.Sleep(time.Hour)
		equal(t, "commits although nothing was seen", m.Commits()-before, 0)
	})
}

// Deleted nodes are removed from the rows.
func TestSeenForgetsDeletedNodes(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		a, _ := seer(t, m)
		b, _ := seer(t, m)
		putNodes(t, m, 100)
		for i := range 100 {
			a.Note(fmt.Sprint("s/g/c/", i), time.Now())
		}
		flushed(t, a)
		for i := range 99 {
			dropNode(t, s, fmt.Sprint("s/g/c/", i))
		}
		runs(t, a)
		runs(t, b)
		time.Sleep(seenSweep + 2*seenRound)
		if keys, size := seenRows(t, m); len(keys) != 1 || size != seenItemSize {
			t.Errorf("rows %v of %d bytes", keys, size)
		}
		for replica, s := range []*Seen{a, b} {
			left := 0
			for i := range s.shards {
				left += len(s.shards[i])
			}
			if left != 1 || s.Last("s/g/c/99").IsZero() {
				t.Errorf("%d remembers %d", replica, left)
			}
		}
	})
}

// Contacts with a replica that was cut off for long are known to all once it comes back.
func TestSeenOfAReplicaThatComesBack(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		a, itsA := seer(t, m)
		b, _ := seer(t, m)
		putNode(t, s, "s/g/c/n", uidNode("u1"))
		putNode(t, s, "s/g/c/o", uidNode("u2"))
		synctest.Wait()
		at := time.Now().Truncate(time.Minute)
		a.Note("s/g/c/n", at)
		flushed(t, a)
		stop := runs(t, b)
		cutOff(itsA)
		a.Note("s/g/c/o", at)
		equal(t, "an error is reported", a.Flush(t.Context()) != nil, true)
		time.Sleep(26 * time.Hour)
		stop()
		itsA.Before(nil)
		runs(t, a)
		time.Sleep(time.Hour)
		c, _ := seer(t, m)
		for i, s := range []*Seen{a, b, c} {
			for _, node := range []string{"s/g/c/n", "s/g/c/o"} {
				equal(t, fmt.Sprint("what ", i, " knows of ", node), s.Last(node), at)
			}
		}
	})
}

func TestSeenRowsThatAreDamaged(t *testing.T) {
	m, s := newMemory()
	putNode(t, s, "s/g/c/n", uidNode("u1"))
	for i, key := range []string{"", "x", "99", "-1", "zz", "/", "00"} {
		put(t, m, indexed+"seen/"+key, strings.Repeat("\xff", i))
	}
	seen, _ := seer(t, m)
	equal(t, "when it was seen", seen.Last("s/g/c/n"), time.Time{})
}

// The share of a replica is its part of the nodes that any replica has lately heard of.
func TestShareOfAReplica(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, _ *Store) {
		a, _ := seer(t, m)
		b, _ := seer(t, m)
		putNodes(t, m, 10)
		check := func(when string, s *Seen, replicas, want int) {
			t.Helper()
			equal(t, fmt.Sprintf("%s, one of %d expects", when, replicas), s.Share(replicas), want)
		}
		check("before", a, 1, 0)
		for i := range 9 {
			a.Note(fmt.Sprint("s/g/c/", i), time.Now())
		}
		check("alone", a, 1, 9)
		check("before it has read how many there are", a, 0, 9)
		flushed(t, a)
		check("after a has written", b, 2, 5)
		b.Note("s/g/c/9", time.Now())
		flushed(t, b)
		check("when both have heard of some", a, 2, 5)
		time.Sleep(agentAge / 2)
		check("when b has gone", a, 1, 10)
		time.Sleep(agentAge)
		check("much later", a, 1, 0)
	})
}

// With a replica whose clock is a day ahead, no node counts as heard of until tomorrow.
func TestSeenOfAClockThatIsAhead(t *testing.T) {
	m := storetest.NewMemory()
	putNode(t, New(m), "s/g/c/a", uidNode("a"))
	s, _ := seer(t, m)
	hash, now := seenHash("a"), time.Now()
	row := func(at time.Time) []byte { return packSeen(map[uint64]uint32{hash: minutes(at)}) }
	key := fmt.Sprintf("%02d", hash>>58)
	s.merge(key, row(now.Add(24*time.Hour)))
	equal(t, "when it is heard of", s.Last("s/g/c/a"), time.Time{})
	s.merge(key, row(now.Add(time.Minute)))
	equal(t, "a minute is too much", s.Last("s/g/c/a").IsZero(), false)
	// The same holds after this replica's clock was ahead.
	s.Note("s/g/c/a", now.Add(24*time.Hour))
	s.Note("s/g/c/a", now.Add(time.Minute))
	equal(t, "after it was set back", s.Last("s/g/c/a").After(now.Add(time.Minute)), false)
	// Its time is replaced in the row, too.
	write(t, m, Write{Key: seenKey(int(hash >> 58)), Value: row(now.Add(24 * time.Hour))})
	s.Note("s/g/c/a", now.Add(2*time.Minute))
	must(0, s.Flush(t.Context()))
	got := []byte(values(t, m, seenKey(int(hash>>58)))[0])
	equal(t, "the time in the row", unpackSeen(got)[hash], minutes(now.Add(2*time.Minute)))
}
