package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// followUntil follows a prefix until all events were seen, and returns them.
func followUntil(
	t *testing.T, b Backend, prefix string, after int64, enough func([]Event, int64) bool,
) []Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var events []Event
	reached, was := false, after
	err := b.Follow(ctx, prefix, after, func(batch Batch) {
		if reached {
			return
		}
		if batch.Revision < was {
			t.Errorf("the revision went back from %d to %d", was, batch.Revision)
		}
		was = batch.Revision
		if events = append(events, batch.Events...); enough(events, batch.Revision) {
			reached = true
			cancel()
		}
	})
	if !reached {
		t.Fatalf("ended after %d events: %v", len(events), err)
	}
	return events
}

// atLeast reports whether there are so many events.
func atLeast(n int) func([]Event, int64) bool {
	return func(events []Event, _ int64) bool { return len(events) >= n }
}

// patience limits the suite's wait for an event.
const patience = time.Minute

// A reader that has seen a change reads it: nothing else would make it read again.
func readsHeard(t *testing.T, b Backend) {
	const writers, each = 8, 500
	start := put(t, b, "told/x", "0")
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range each {
				put(t, b, fmt.Sprintf("told/%d", w), fmt.Sprint(n))
			}
		})
	}
	seen, early := 0, 0
	followUntil(t, b, "told/", start, func(all []Event, revision int64) bool {
		for ; seen < len(all); seen++ {
			got, at, err := b.Read(t.Context(), all[seen].Key)
			isError(t, "a read", err, nil)
			if at < all[seen].Revision || got[all[seen].Key].Revision < all[seen].Revision {
				early++
			}
		}
		return seen == writers*each
	})
	writing.Wait()
	if early > 0 {
		t.Errorf("%d of %d changes could not be read when their event came", early, writers*each)
	}
}

func follows(t *testing.T, b Backend) {
	start := put(t, b, "follows/a", "1")
	one := put(t, b, "follows/a", "2", "follows/b", "1", "elsewhere", "1")
	two := write(t, b, Write{Key: "follows/b", Delete: true})
	go put(t, b, "follows/c", "1") // while it is followed
	events := followUntil(t, b, "follows/", start, atLeast(4))
	three := events[3].Revision
	want := []Event{
		{KV: KV{Key: "follows/a", Value: []byte("2"), Revision: one}},
		{KV: KV{Key: "follows/b", Value: []byte("1"), Revision: one}},
		{KV: KV{Key: "follows/b", Value: nil, Revision: two}, Deleted: true},
		{KV: KV{Key: "follows/c", Value: []byte("1"), Revision: three}},
	}
	if diff := cmp.Diff(want, events); diff != "" || three <= two {
		t.Error(diff)
	}
	again := followUntil(t, b, "follows/", one, atLeast(2))
	equal(t, "from the middle", again, want[2:])
}

// A follower that resumes from the revision of each batch, also one of many when far behind, misses
// nothing and sees nothing twice.
func resumes(t *testing.T, b Backend) {
	const n = 2500
	after := put(t, b, "resumes", "the start")
	var all sync.WaitGroup
	for w := range 10 {
		all.Go(func() {
			for i := range n / 10 {
				put(t, b, fmt.Sprintf("resumes/%02d-%04d", w, i), "1")
			}
		})
	}
	all.Wait()
	seen := map[string]int{}
	for len(seen) < n {
		for _, e := range followUntil(t, b, "resumes/", after, func(e []Event, at int64) bool {
			after = at
			return len(e) > 0
		}) {
			seen[e.Key]++
		}
	}
	for key, times := range seen {
		equal(t, "how often "+key+" was seen", times, 1)
	}
}

// A follower of a prefix without changes learns the store's revision, also if it begins there, or
// that the store is behind.
func nothingChanges(t *testing.T, b Backend) {
	start := put(t, b, "quiet", "1")
	later := put(t, b, "elsewhere", "2")
	events := followUntil(t, b, "quiet/", start, func(_ []Event, at int64) bool { return at >= later })
	equal(t, "events", len(events), 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- b.Follow(ctx, "quiet/", later+10, func(Batch) {}) }()
	reported := func(_ []Event, at int64) bool { return at == later && ctx.Err() == nil }
	followUntil(t, b, "quiet/", later, reported)
	isError(t, "follow from after the present", <-ended, kv.ErrWentBack)
}

// Rows with a lease vanish when it is closed or not renewed, and not before.
func (s subject) leases(t *testing.T, b Backend) {
	ctx := t.Context()
	for name, end := range map[string]func(*testing.T, Backend, Lease){
		"closed": func(t *testing.T, _ Backend, l Lease) {
			isError(t, "its end, twice", errors.Join(l.Close(), l.Close()), nil)
		},
		"abandoned": func(_ *testing.T, holder Backend, l Lease) { s.abandon(holder, l) },
	} {
		t.Run(name, func(t *testing.T) {
			holder := b
			if m, ok := b.(*storetest.Memory); ok {
				holder = m.Another()
			}
			asked := time.Now()
			l, err := holder.Lease(ctx, 2*time.Second)
			if err != nil || l.ID() == 0 || !l.Until().After(asked) {
				t.Fatalf("%+v, %v", l, err)
			}
			key := "leases/" + name
			start := write(t, b, Write{Key: key, Value: []byte("1"), Lease: l.ID()},
				Write{Key: key + "/freed", Value: []byte("1"), Lease: l.ID()})
			put(t, b, key+"/freed", "2")                       // another write takes it off the lease
			for first := l.Until(); !l.Until().After(first); { // until it was kept
				time.Sleep(time.Millisecond)
			}
			equal(t, "while its lease is kept", values(t, b, key)[0], "1")
			end(t, holder, l)
			followUntil(t, b, key, start, func(events []Event, _ int64) bool {
				return len(events) > 1 && events[len(events)-1].Deleted
			})
			if name == "closed" { // Done is not closed for an abandoned lease
				<-l.Done()
			}
			equal(t, "after the end", values(t, b, key, key+"/freed"), []string{"-", "2"})
			if name == "abandoned" && time.Now().Before(l.Until()) {
				t.Error("it has ended before its holder could know")
			}
			_, err = b.Commit(ctx, nil, []Write{{Key: key, Value: []byte("2"), Lease: l.ID()}})
			if err == nil || errors.Is(err, ErrConflict) {
				t.Errorf("a write with a lease that has ended: %v", err)
			}
		})
	}
}

func (s subject) snapshot(t *testing.T, b Backend) {
	put(t, b, "snapshot/a", "1", "snapshot/b", "1")
	put(t, b, "snapshot/a", "2")
	other := s.restored(t, b)
	put(t, b, "snapshot/a", "3")
	got := values(t, other, "snapshot/a", "snapshot/b")
	equal(t, "the keys", got, []string{"2", "1"})
	put(t, other, "snapshot/a", "4")
}

func compacts(t *testing.T, b Backend) {
	ctx := t.Context()
	start := put(t, b, "compaction/a", "1")
	put(t, b, "compaction/a", "2")
	at := put(t, b, "compaction/b", "1")
	last := put(t, b, "compaction/b", "2")
	must(0, b.Compact(ctx, at))
	isError(t, "a compaction to before", b.Compact(ctx, start), ErrCompacted)
	isError(t, "follow from before", b.Follow(ctx, "compaction/", start, func(Batch) {}), ErrCompacted)
	_, err := b.Scan(ctx, "compaction/", "", 10, start)
	isError(t, "a scan of the past", err, ErrCompacted)
	page, err := b.Scan(ctx, "compaction/", "", 10, at)
	if err != nil || len(page.KVs) != 2 || string(page.KVs[1].Value) != "1" {
		t.Errorf("a scan of then: %+v, %v", page, err)
	}
	events := followUntil(t, b, "compaction/", at-1, atLeast(2))
	is := []int64{events[0].Revision, events[1].Revision}
	equal(t, "the revisions", is, []int64{at, last})
	now := values(t, b, "compaction/a", "compaction/b")
	equal(t, "what is there now", now, []string{"2", "2"})
}

// writesUntilFull limits the writes until a store reports that it is full: etcd knows its size once
// its log is in its database, each half a second here and after 10,000 writes.
const writesUntilFull = 10_100

// A full store refuses writes, reports that, and does everything else.
func (s subject) isFull(t *testing.T) {
	ctx := t.Context()
	b := s.open(t, 2<<20)
	health := func(full bool) {
		t.Helper()
		h, err := b.Health(ctx)
		if err != nil || h.Full != full || h.Revision == 0 || h.Size <= 0 {
			t.Errorf("health %+v, %v; want full %v", h, err, full)
		}
	}
	put(t, b, "small", "1")
	health(false)
	var err error
	var keys []string
	for i := 0; err == nil && i < writesUntilFull; i++ {
		keys = append(keys, fmt.Sprintf("full/%05d", i))
		_, err = b.Commit(ctx, nil, []Write{{Key: keys[i], Value: make([]byte, 64<<10)}})
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("after %d writes: %v; want that it is full", len(keys), err)
	}
	health(true)
	if got := values(t, b, "small", keys[0]); got[0] != "1" || len(got[1]) != 64<<10 {
		t.Errorf("reads of a full store: %.10s", got)
	}
	_, err = b.Commit(ctx, nil, []Write{{Key: "small", Value: make([]byte, 64<<10)}})
	isError(t, "another write", err, ErrFull)
	equal(t, "what a full store has taken", values(t, b, "small")[0], "1")
	for _, key := range keys {
		write(t, b, Write{Key: key, Delete: true})
	}
	s.makeRoom(t, b)
	put(t, b, "small", "2")
	health(false)
}
