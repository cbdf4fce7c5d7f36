package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

func commits(t *testing.T, b Backend) {
	ctx := t.Context()
	absent := []Condition{{Key: "commits/a", Revision: 0}}
	first, err := b.Commit(ctx, absent, []Write{{Key: "commits/a", Value: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, conditions := range map[string][]Condition{
		"absent, but it is there":               absent,
		"another revision":                      {{Key: "commits/a", Revision: first - 1}},
		"there, but it is absent":               {{Key: "commits/none", Revision: first}},
		"nothing below, but there is something": {{Key: "commits/", Empty: true}},
		"the second of two": {
			{Key: "commits/a", Revision: first}, {Key: "commits/none", Revision: first},
		},
	} {
		_, err := b.Commit(ctx, conditions, []Write{
			{Key: "commits/b", Value: []byte("1")}, {Key: "commits/a", Delete: true},
		})
		if !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v; want a conflict", name, err)
		}
	}
	if diff := cmp.Diff([]string{"1", "-"}, values(t, b, "commits/a", "commits/b")); diff != "" {
		t.Errorf("after conflicts: %s", diff)
	}
	second, err := b.Commit(ctx,
		[]Condition{{Key: "commits/a", Revision: first}, {Key: "commits/none"},
			{Key: "commits/none/", Empty: true}},
		[]Write{{Key: "commits/b", Value: nil}, {Key: "commits/a", Delete: true}})
	if err != nil || second <= first {
		t.Errorf("revision %d after %d, %v", second, first, err)
	}
	if diff := cmp.Diff([]string{"-", ""}, values(t, b, "commits/a", "commits/b")); diff != "" {
		t.Error(diff)
	}
	gone := []Condition{{Key: "commits/a"}, {Key: "commits/a", Empty: true}}
	if _, err := b.Commit(ctx, gone, []Write{{Key: "commits/none", Delete: true}}); err != nil {
		t.Errorf("the deletion of what is absent: %v", err)
	}
}

func oneWinner(t *testing.T, b Backend) {
	const writers = 20
	before := put(t, b, "race", "-")
	var all sync.WaitGroup
	won := make(chan string, writers)
	for i := range writers {
		all.Go(func() {
			v := fmt.Sprint(i)
			_, err := b.Commit(t.Context(), []Condition{{Key: "race", Revision: before}},
				[]Write{{Key: "race", Value: []byte(v)}})
			if err == nil {
				won <- v
			} else if !errors.Is(err, ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d writers won", len(won))
	}
	if diff := cmp.Diff([]string{<-won}, values(t, b, "race")); diff != "" {
		t.Error(diff)
	}
}

func largeTransactions(t *testing.T, b Backend) {
	ctx := t.Context()
	var writes []Write
	var conditions []Condition
	for i := range MaxWrites + 1 {
		key := fmt.Sprintf("large/%04d", i)
		writes = append(writes, Write{Key: key, Value: []byte("1")})
		conditions = append(conditions, Condition{Key: key})
	}
	if _, err := b.Commit(ctx, nil, writes); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d writes: %v", len(writes), err)
	}
	if _, err := b.Commit(ctx, conditions, writes[:1]); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d conditions: %v", len(conditions), err)
	}
	heavy := []Write{{Key: "large/0000", Value: make([]byte, 800<<10)},
		{Key: "large/0001", Value: make([]byte, 800<<10)}}
	if _, err := b.Commit(ctx, nil, heavy); !errors.Is(err, ErrTooLarge) {
		t.Errorf("writes of 1600 KiB: %v", err)
	}
	if got := values(t, b, "large/0000"); got[0] != "-" {
		t.Errorf("something was written: %s", got)
	}
	if _, err := b.Commit(ctx, conditions[:MaxWrites], writes[:MaxWrites]); err != nil {
		t.Errorf("%d writes: %v", MaxWrites, err)
	}
	heavy = []Write{{Key: "large/heavy", Value: make([]byte, kv.MaxBytes-len("large/heavy"))}}
	if _, err := b.Commit(ctx, nil, heavy); err != nil {
		t.Errorf("the largest that is allowed: %v", err)
	}
	if got := values(t, b, "large/0000", "large/0127"); got[0] != "1" || got[1] != "1" {
		t.Errorf("not all was written: %s", got)
	}
}
