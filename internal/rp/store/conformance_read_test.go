package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

func reads(t *testing.T, b Backend) {
	first := put(t, b, "reads/a", "1", "reads/b", "1")
	second := put(t, b, "reads/b", "2")
	got, at, err := b.Read(t.Context(), "reads/a", "reads/none", "reads/b")
	equal(t, "the revision", must(at, err), second)
	want := map[string]KV{"reads/a": {Key: "reads/a", Value: []byte("1"), Revision: first},
		"reads/b": {Key: "reads/b", Value: []byte("2"), Revision: second}}
	equal(t, "what is read", got, want)
	write(t, b, Write{Key: "reads/b", Delete: true})
	again := put(t, b, "reads/b", "3")
	got, _, err = b.Read(t.Context(), "reads/b")
	must(0, err)
	equal(t, "the revision of one that was made again", got["reads/b"].Revision, again)
	_, at, err = b.Read(t.Context())
	equal(t, "the revision of a read of nothing", must(at, err), again)
}

// Reads of two keys that are always written together always agree.
func manyKeys(t *testing.T, b Backend) {
	var keys []string
	for i := range MaxWrites {
		keys = append(keys, fmt.Sprintf("many/%04d", i))
	}
	first, last := keys[0], keys[len(keys)-1]
	put(t, b, first, "0", last, "0")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			put(t, b, first, fmt.Sprint(i), last, fmt.Sprint(i))
		}
	}()
	for range 50 {
		got, at, err := b.Read(t.Context(), keys...)
		if err != nil || !bytes.Equal(got[first].Value, got[last].Value) || got[last].Revision > at {
			t.Errorf("at %d: %+v, %+v, %v", at, got[first], got[last], err)
		}
	}
	close(stop)
	<-done
}

// Every read that begins after a write sees it, on any connection and with any concurrent writes.
func readsWritten(t *testing.T, b Backend) {
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			key := fmt.Sprintf("written/%d", w)
			for i := range 50 {
				want := fmt.Sprint(i)
				revision := put(t, b, key, want)
				got, at, err := b.Read(t.Context(), key)
				if err != nil || string(got[key].Value) != want || at < revision {
					t.Errorf("%s was written at %d; read at %d: %s, %v", want, revision, at, got[key].Value, err)
				}
				page, err := b.Scan(t.Context(), key, "", 1, 0)
				if err != nil || len(page.KVs) != 1 || string(page.KVs[0].Value) != want {
					t.Errorf("%s was written; scanned: %v, %v", want, page.KVs, err)
				}
			}
		})
	}
	writers.Wait()
}

// A scan in pages at one revision sees none of the concurrent writes.
func scans(t *testing.T, b Backend) {
	ctx := t.Context()
	const n = 500
	var last int64
	for i := 0; i < n; i += 100 {
		var writes []Write
		for j := range 100 {
			writes = append(writes,
				Write{Key: fmt.Sprintf("scans/%04d", i+j), Value: []byte("old")})
		}
		last = write(t, b, writes...)
	}
	put(t, b, "scans0", "beyond the prefix", "scan", "before it")
	now, err := b.Scan(ctx, "scans/", "", 1, 0)
	if err != nil || now.Revision <= last || !now.More {
		t.Fatalf("%+v, %v", now, err)
	}
	after, pages := "", 0
	var keys []string
	for {
		page, err := b.Scan(ctx, "scans/", after, 120, now.Revision)
		if err != nil || page.Revision != now.Revision {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, kv := range page.KVs {
			if keys, after = append(keys, kv.Key), kv.Key; string(kv.Value) != "old" {
				t.Errorf("%s is %s", kv.Key, kv.Value)
			}
		}
		if pages++; !page.More {
			break
		}
		last := fmt.Sprintf("scans/%04d", n-pages)
		put(t, b, last, "new", last+"x", "new")
		write(t, b, Write{Key: fmt.Sprintf("scans/%04d", n-100-pages), Delete: true})
	}
	if len(keys) != n || pages != 5 || keys[0] != "scans/0000" || keys[n-1] != "scans/0499" {
		t.Errorf("%d keys on %d pages, from %s", len(keys), pages, keys[0])
	}
	if fresh, err := b.Scan(ctx, "scans/", "scans/0498", 10, 0); err != nil ||
		len(fresh.KVs) != 3 || fresh.More || fresh.Revision <= now.Revision {
		t.Errorf("what is there now: %+v, %v", fresh, err)
	}
	if keys, more, err := b.Keys(ctx, "scans/", "scans/0497", 2); err != nil || !more ||
		fmt.Sprint(keys) != "[scans/0497x scans/0498]" {
		t.Errorf("keys that are there now: %v, %t, %v", keys, more, err)
	}
	keys, more, err := b.Keys(ctx, "scans/none/", "", 2)
	equal(t, "no keys", fmt.Sprint(keys, more, err), "[] false <nil>")
	none, err := b.Scan(ctx, "scans/none/", "", 10, 0)
	equal(t, "nothing", fmt.Sprint(none.KVs, none.More, err), "[] false <nil>")
}

func commits(t *testing.T, b Backend) {
	ctx := t.Context()
	absent := []Condition{{Key: "commits/a", Revision: 0}}
	first := must(b.Commit(ctx, absent, []Write{{Key: "commits/a", Value: []byte("1")}}))
	for name, conditions := range map[string][]Condition{
		"absent, but it is there":               absent,
		"another revision":                      {{Key: "commits/a", Revision: first - 1}},
		"there, but it is absent":               {{Key: "commits/none", Revision: first}},
		"nothing below, but there is something": {{Key: "commits/", Empty: true}},
		"the second of two": {{Key: "commits/a", Revision: first},
			{Key: "commits/none", Revision: first}},
	} {
		_, err := b.Commit(ctx, conditions, []Write{{Key: "commits/b", Value: []byte("1")},
			{Key: "commits/a", Delete: true}})
		isError(t, name, err, ErrConflict)
	}
	equal(t, "after conflicts", values(t, b, "commits/a", "commits/b"), []string{"1", "-"})
	second, err := b.Commit(ctx,
		[]Condition{{Key: "commits/a", Revision: first}, {Key: "commits/none"},
			{Key: "commits/none/", Empty: true}},
		[]Write{{Key: "commits/b", Value: nil}, {Key: "commits/a", Delete: true}})
	if err != nil || second <= first {
		t.Errorf("revision %d after %d, %v", second, first, err)
	}
	equal(t, "the values", values(t, b, "commits/a", "commits/b"), []string{"-", ""})
	gone := []Condition{{Key: "commits/a"}, {Key: "commits/a", Empty: true}}
	must(b.Commit(ctx, gone, []Write{{Key: "commits/none", Delete: true}}))
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
	equal(t, "the value of the race", values(t, b, "race"), []string{<-won})
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
	_, err := b.Commit(ctx, nil, writes)
	isError(t, "too many writes", err, ErrTooLarge)
	_, err = b.Commit(ctx, conditions, writes[:1])
	isError(t, "too many conditions", err, ErrTooLarge)
	heavy := []Write{{Key: "large/0000", Value: make([]byte, 800<<10)},
		{Key: "large/0001", Value: make([]byte, 800<<10)}}
	_, err = b.Commit(ctx, nil, heavy)
	isError(t, "writes of 1600 KiB", err, ErrTooLarge)
	equal(t, "what was written", values(t, b, "large/0000")[0], "-")
	must(b.Commit(ctx, conditions[:MaxWrites], writes[:MaxWrites]))
	heavy = []Write{{Key: "large/heavy", Value: make([]byte, kv.MaxBytes-len("large/heavy"))}}
	must(b.Commit(ctx, nil, heavy)) // the largest that is allowed
	equal(t, "the ends", values(t, b, "large/0000", "large/0127"), []string{"1", "1"})
}
