package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// Replicas that compact together keep the changes of one to two intervals, and no fewer.
func TestCompactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		m := storetest.NewMemory()
		failed := func(err error) {
			if ctx.Err() == nil {
				t.Error(err)
			}
		}
		for i := range 3 {
			go func() {
				time.Sleep(time.Duration(i) * time.Minute) // they start apart
				Compactor{Failed: failed}.Run(ctx, New(m.Another()))
			}()
		}
		at := map[int]int64{} // revision by minute
		for minute := range 60 {
			at[minute] = put(t, m, "a", fmt.Sprint(minute))
			if minute > 2*int(CompactEvery/time.Minute) {
				recent, old := at[minute-5], at[minute-11]
				if err := compactedBefore(t, m, recent); err != nil {
					t.Errorf("in minute %d the changes of 5 minutes before are gone: %v", minute,
						err)
				}
				if err := compactedBefore(t, m, old); !errors.Is(err, ErrCompacted) {
					t.Errorf("in minute %d the changes of 11 minutes before are kept: %v", minute,
						err)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		stop()
		synctest.Wait()
	})
}

// compactedBefore asks for what was at a revision.
func compactedBefore(t *testing.T, b Backend, revision int64) error {
	t.Helper()
	_, err := b.Scan(t.Context(), "a", "", 1, revision)
	return err
}

// One of several replicas compacts in a round, and the others begin to wait anew.
func TestOneReplicaCompacts(t *testing.T) {
	ctx, m, c := t.Context(), storetest.NewMemory(), Compactor{}
	a, b := New(m.Another()), New(m.Another())
	put(t, m, "a", "1")
	seenA, err := c.observe(ctx, a)
	seenB, err2 := c.observe(ctx, b)
	if err := errors.Join(err, err2); err != nil || seenA != seenB {
		t.Fatal(seenA, seenB, err)
	}
	last := put(t, m, "a", "2")
	nextA, err := c.round(ctx, a, seenA)
	if err != nil || nextA.store <= last {
		t.Fatal(nextA, err)
	}
	if err := compactedBefore(t, m, seenA.store); err != nil {
		t.Errorf("compacted too far: %v", err)
	}
	if err := compactedBefore(t, m, seenA.store-1); !errors.Is(err, ErrCompacted) {
		t.Errorf("not compacted: %v", err)
	}
	nextB, err := c.round(ctx, b, seenB)
	if err != nil || nextB.row != nextA.row {
		t.Errorf("%+v, %v; want it to have seen %+v", nextB, err, nextA)
	}
	if err := compactedBefore(t, m, seenA.store); err != nil {
		t.Errorf("the second one has compacted too: %v", err)
	}
}

// A full store is compacted, though it takes no row: nothing else makes room in it.
func TestAFullStoreIsCompacted(t *testing.T) {
	ctx := t.Context()
	e := embedded(t, t.TempDir(), Options{Quota: 2 << 20, NoSync: true})
	s := New(e)
	before := put(t, e, "a", "1")
	put(t, e, "a", "2")
	seen, err := Compactor{}.observe(ctx, s)
	for i := 0; err == nil && i < writesUntilFull; i++ {
		_, err = e.Commit(ctx, nil, []Write{{Key: "a", Value: make([]byte, 64<<10)}})
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	next, err := Compactor{}.round(ctx, s, seen)
	if err != nil || next.store <= seen.store {
		t.Fatalf("%+v, %v", next, err)
	}
	if err := compactedBefore(t, e, before); !errors.Is(err, ErrCompacted) {
		t.Errorf("it was not compacted: %v", err)
	}
	if _, err = (Compactor{}).round(ctx, s, next); err != nil {
		t.Errorf("another round: %v", err)
	}
	defragmented(t, e)
	put(t, e, "a", "3")
}

// What grows for ever without compaction does not grow with it: B1.
func TestCompactedStoreDoesNotGrow(t *testing.T) {
	ctx := t.Context()
	_, e := startMembers(t, 1, 0)
	s := New(e)
	seen, err := Compactor{}.observe(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	const rounds, values, each = 20, 20, 32 << 10
	for range rounds {
		for i := range values {
			write(t, e, Write{Key: fmt.Sprint(i), Value: make([]byte, each)})
		}
		if seen, err = (Compactor{}).round(ctx, s, seen); err != nil {
			t.Fatal(err)
		}
	}
	if size := e.Members(ctx)[0].Size; size > rounds*values*each/3 {
		t.Errorf("it has grown to %d bytes of the %d that were written", size, rounds*values*each)
	}
}
