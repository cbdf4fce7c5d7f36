package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// atLeast is enough when there are so many events.
func atLeast(n int) func([]Event, int64) bool {
	return func(events []Event, _ int64) bool { return len(events) >= n }
}

// patience limits the suite's wait for an event.
const patience = time.Minute

func follows(t *testing.T, b Backend) {
	start := put(t, b, "follows/a", "1")
	one := put(t, b, "follows/a", "2", "follows/b", "1", "elsewhere", "1")
	two := write(t, b, Write{Key: "follows/b", Delete: true})
	go func() { // while it is followed
		_, err := b.Commit(context.Background(), nil,
			[]Write{{Key: "follows/c", Value: []byte("1")}})
		if err != nil {
			t.Error(err)
		}
	}()
	events := followUntil(t, b, "follows/", start, atLeast(4))
	three := events[3].Revision
	want := []Event{
		{KV: KV{Key: "follows/a", Value: []byte("2"), Revision: one, Created: start}},
		{KV: KV{Key: "follows/b", Value: []byte("1"), Revision: one, Created: one}},
		{KV: KV{Key: "follows/b", Value: nil, Revision: two, Created: 0}, Deleted: true},
		{KV: KV{Key: "follows/c", Value: []byte("1"), Revision: three, Created: three}},
	}
	if diff := cmp.Diff(want, events); diff != "" || three <= two {
		t.Error(diff)
	}
	again := followUntil(t, b, "follows/", one, atLeast(2))
	if diff := cmp.Diff(want[2:], again); diff != "" {
		t.Errorf("from the middle: %s", diff)
	}
}

// Who goes on from the revision of each batch, also of one of many when far behind, misses nothing
// and sees nothing twice.
func resumes(t *testing.T, b Backend) {
	const n = 2500
	after := put(t, b, "resumes", "the start")
	var all sync.WaitGroup
	for w := range 10 {
		all.Go(func() {
			for i := range n / 10 {
				key := fmt.Sprintf("resumes/%02d-%04d", w, i)
				_, err := b.Commit(t.Context(), nil, []Write{{Key: key, Value: []byte("1")}})
				if err != nil {
					t.Error(err)
					return
				}
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
		if times != 1 {
			t.Errorf("%s was seen %d times", key, times)
		}
	}
}

// Who follows a prefix in which nothing changes learns how far the store is.
func nothingChanges(t *testing.T, b Backend) {
	start := put(t, b, "quiet", "1")
	behind, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // another follower must not keep it from that
		_ = b.Follow(behind, "resumes/", start, func(Batch) {}) // until it is cancelled
	}()
	later := put(t, b, "elsewhere", "2")
	events := followUntil(t, b, "quiet/", start,
		func(_ []Event, at int64) bool { return at >= later })
	if len(events) != 0 {
		t.Errorf("%+v", events)
	}
}
