package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (s subject) snapshot(t *testing.T, b Backend) {
	put(t, b, "snapshot/a", "1", "snapshot/b", "1")
	put(t, b, "snapshot/a", "2")
	other := s.restored(t, b)
	put(t, b, "snapshot/a", "3")
	got := values(t, other, "snapshot/a", "snapshot/b")
	if diff := cmp.Diff([]string{"2", "1"}, got); diff != "" {
		t.Error(diff)
	}
	put(t, other, "snapshot/a", "4")
}

func compacts(t *testing.T, b Backend) {
	ctx := t.Context()
	start := put(t, b, "compaction/a", "1")
	put(t, b, "compaction/a", "2")
	at := put(t, b, "compaction/b", "1")
	last := put(t, b, "compaction/b", "2")
	if err := b.Compact(ctx, at); err != nil {
		t.Fatal(err)
	}
	if err := b.Compact(ctx, start); !errors.Is(err, ErrCompacted) {
		t.Errorf("a compaction to before: %v", err)
	}
	err := b.Follow(ctx, "compaction/", start, func(Batch) {})
	if !errors.Is(err, ErrCompacted) {
		t.Errorf("follow from before: %v", err)
	}
	if _, err := b.Scan(ctx, "compaction/", "", 10, start); !errors.Is(err, ErrCompacted) {
		t.Errorf("a scan of before: %v", err)
	}
	page, err := b.Scan(ctx, "compaction/", "", 10, at)
	if err != nil || len(page.KVs) != 2 || string(page.KVs[1].Value) != "1" {
		t.Errorf("a scan of then: %+v, %v", page, err)
	}
	events := followUntil(t, b, "compaction/", at-1, atLeast(2))
	if events[0].Revision != at || events[1].Revision != last {
		t.Errorf("%+v", events)
	}
	if got := values(t, b, "compaction/a", "compaction/b"); got[0] != "2" || got[1] != "2" {
		t.Errorf("what is there now: %s", got)
	}
}

// writesUntilFull limits the writes until a store says that it is full: etcd knows how large it is
// when it has put what is in its log into its database, each half a second here and after 10,000
// writes.
const writesUntilFull = 10_100

// A store that is full refuses writes, says so, and does everything else.
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
	if !errors.Is(err, ErrFull) {
		t.Errorf("another write: %v", err)
	}
	if got := values(t, b, "small"); got[0] != "1" {
		t.Error("a full store has taken a write")
	}
	for _, key := range keys {
		write(t, b, Write{Key: key, Delete: true})
	}
	s.makeRoom(t, b)
	put(t, b, "small", "2")
	health(false)
}
