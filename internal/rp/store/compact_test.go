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
				New(m.Another()).KeepCompacted(ctx, failed)
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

// A full store is compacted: nothing else makes room in it.
func TestAFullStoreIsCompacted(t *testing.T) {
	ctx := t.Context()
	e := embedded(t, t.TempDir(), Options{Quota: 2 << 20, NoSync: true})
	before := put(t, e, "a", "1")
	last := put(t, e, "a", "2")
	var err error
	for i := 0; err == nil && i < writesUntilFull; i++ {
		_, err = e.Commit(ctx, nil, []Write{{Key: "a", Value: make([]byte, 64<<10)}})
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := e.Compact(ctx, last); err != nil {
		t.Fatal(err)
	}
	if err := compactedBefore(t, e, before); !errors.Is(err, ErrCompacted) {
		t.Errorf("it was not compacted: %v", err)
	}
	_, now, err := e.Read(ctx)
	if err := errors.Join(err, e.Compact(ctx, now)); err != nil {
		t.Errorf("another time: %v", err)
	}
	defragmented(t, e)
	put(t, e, "a", "3")
}

// What grows for ever without compaction does not grow with it: B1.
func TestCompactedStoreDoesNotGrow(t *testing.T) {
	ctx := t.Context()
	_, e := startMembers(t, 1, 0)
	const rounds, values, each = 20, 20, 32 << 10
	for range rounds {
		for i := range values {
			write(t, e, Write{Key: fmt.Sprint(i), Value: make([]byte, each)})
		}
		if _, err := e.CompactAll(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if size := e.Members(ctx)[0].Size; size > rounds*values*each/3 {
		t.Errorf("it has grown to %d bytes of the %d that were written", size, rounds*values*each)
	}
}
