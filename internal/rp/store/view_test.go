package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

func names(s *Store) Table[string] { return s.PodCIDRs }

// newMemory returns a store in memory.
func newMemory() (*storetest.Memory, *Store) {
	m := storetest.NewMemory()
	return m, New(m)
}

// inMemory runs a test in a bubble of time, with a store in memory.
func inMemory(t *testing.T, test func(*testing.T, *storetest.Memory, *Store)) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory()
		test(t, m, s)
	})
}

// on does something before each call of a kind.
func on(op string, do func()) func(storetest.Call) error {
	return func(c storetest.Call) error {
		if c.Op == op {
			do()
		}
		return nil
	}
}

// fails makes the calls of some kinds fail.
func fails(err error, ops ...string) func(storetest.Call) error {
	return func(c storetest.Call) error {
		if slices.Contains(ops, c.Op) {
			return err
		}
		return nil
	}
}

func update(t *testing.T, s *Store, decide func(*View) error) int64 {
	return must(s.Update(t.Context(), "test", nil, decide))
}

// setRow writes a row, whatever was there.
func setRow[T any](t *testing.T, table Table[T], key string, value T) int64 {
	return update(t, table.store, func(v *View) error { return table.Set(v, key, value) })
}

// rowsIn returns all rows of a table.
func rowsIn[T any](t *testing.T, table Table[T]) []Row[T] {
	rows, _, err := table.List(t.Context(), "")
	return must(rows, err)
}

// drop deletes a row.
func drop[T any](t *testing.T, table Table[T], key string) int64 {
	return update(t, table.store, func(v *View) error {
		table.Delete(v, key)
		return nil
	})
}

func set(t *testing.T, s *Store, key, value string) int64 {
	return setRow(t, names(s), key, value)
}

// stored returns the value of a name.
func stored(t *testing.T, s *Store, key string) string {
	return must(names(s).Get(t.Context(), key)).Value
}

func TestUpdateDecidesAgainOnNewValues(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		set(t, s, "a", "0")
		var seen []string
		began := time.Now()
		update(t, s, func(v *View) error {
			row := names(s).Row(v, "a")
			seen = append(seen, row.Value)
			if len(seen) < 4 { // another writer is quicker
				set(t, New(m.Another()), "a", fmt.Sprint(len(seen)))
			}
			return names(s).Put(v, "a", row.Value+"+")
		})
		equal(t, "what decide saw", fmt.Sprint(seen), "[0 1 2 3]")
		equal(t, "what is stored", stored(t, s, "a"), "3+")
		if waited := time.Since(began); waited < 3*time.Millisecond || waited > 16*time.Millisecond {
			t.Errorf("three conflicts took %v of pauses", waited) // 1-2, 1-4 and 1-8 ms
		}
	})
}

// Many writers of the same row pause for different times, so that all succeed.
func TestUpdatesOfManyAllHappen(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		m.Before(on("commit", func() { time.Sleep(time.Millisecond) })) // so that they overlap
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := s.Update(t.Context(), "count", nil, func(v *View) error {
					row := names(s).Row(v, "n")
					return names(s).Put(v, "n", row.Value+"i")
				})
				isError(t, "a change", err, nil)
			})
		}
		all.Wait()
		equal(t, "what ten changes made", stored(t, s, "n"), "iiiiiiiiii")
	})
}

// A row that was only read is a condition: if it has changed, the change that depends on it is not
// made (write skew, a cluster deleted while a node is added).
func TestUpdateEndsAfterManyConflicts(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		calls := 0
		_, err := s.Update(t.Context(), "never", nil, func(v *View) error {
			if _, err := names(s).In(v, "a"); err != nil {
				return err
			}
			calls++
			set(t, New(m.Another()), "a", fmt.Sprint(calls))
			return names(s).Put(v, "b", "x")
		})
		if !errors.Is(err, ErrConflict) || calls != attempts || stored(t, s, "b") != "" {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestUpdateThatWritesNothingCommitsNothing(t *testing.T) {
	m, s := newMemory()
	s.Did = func(what string) { t.Errorf("did %s", what) }
	revision, err := s.Update(t.Context(), "nothing", nil, func(v *View) error {
		_, err := names(s).In(v, "a")
		return err
	})
	equal(t, "revision, error, commits", fmt.Sprint(revision, err, m.Commits()), "0 <nil> 0")
}

func TestUpdateReadsAheadOnce(t *testing.T) {
	m, s := newMemory()
	set(t, s, "a", "1")
	set(t, s, "b", "2")
	before := m.Reads()
	did := ""
	s.Did = func(what string) { did += what }
	ahead := []string{names(s).Key("a"), names(s).Key("b"), names(s).Key("none")}
	_, err := s.Update(t.Context(), "ahead", ahead, func(v *View) error {
		for _, key := range []string{"a", "b", "none", "a"} {
			if _, err := names(s).In(v, key); err != nil {
				return err
			}
		}
		return names(s).Put(v, "a", "3")
	})
	must(0, err)
	equal(t, "the reads", m.Reads()-before, 1)
	equal(t, "what it did", did, "ahead")
}

func TestErrorOfDecideEndsIt(t *testing.T) {
	m, s := newMemory()
	for _, want := range []error{errors.New("no"), ErrConflict} {
		calls := 0
		_, err := s.Update(t.Context(), "refused", nil, func(v *View) error {
			calls++
			if err := names(s).Set(v, "a", "1"); err != nil {
				return err
			}
			return want
		})
		equal(t, "its error", err == want, true)
		equal(t, "calls, commits", fmt.Sprint(calls, m.Commits()), "1 0")
	}
}

func TestFence(t *testing.T) {
	_, s := newMemory()
	revision := set(t, s, "owner", "me")
	fence := Condition{Key: names(s).Key("owner"), Revision: revision}
	calls := 0
	fenced := func(v *View) error {
		calls++
		v.Fence(fence)
		row := names(s).Row(v, "a")
		return names(s).Put(v, "a", row.Value+"x")
	}
	update(t, s, fenced)
	set(t, s, "owner", "another")
	_, err := s.Update(t.Context(), "fenced", nil, fenced)
	isError(t, "without its fence", err, ErrFenced)
	equal(t, "the calls", calls, 2)
	equal(t, "what is stored", stored(t, s, "a"), "x")
}

// A change with an unknown outcome is not retried: its caller must find out.
func TestUnknownOutcomeIsAnError(t *testing.T) {
	m, s := newMemory()
	lost := errors.New("lost")
	s.Did = func(what string) { t.Errorf("did %s", what) }
	m.After(func(storetest.Call) error { return lost })
	calls := 0
	_, err := s.Update(t.Context(), "unknown", nil, func(v *View) error {
		calls++
		return names(s).Put(v, "a", "1")
	})
	isError(t, "an unknown outcome", err, lost)
	equal(t, "the calls until then", calls, 1)
	equal(t, "what was written", stored(t, s, "a"), "1")
	m.After(nil)
	m.Before(fails(lost, "commit"))
	_, err = s.Update(t.Context(), "failed", nil, func(v *View) error {
		return names(s).Put(v, "a", "2")
	})
	isError(t, "a write that has failed", err, lost)
	equal(t, "what is stored when nothing was written", stored(t, s, "a"), "1")
}

func TestSetAndDeleteDependOnNothing(t *testing.T) {
	m, s := newMemory()
	set(t, s, "gone", "1")
	calls := 0
	update(t, s, func(v *View) error {
		calls++
		set(t, New(m.Another()), "a", "another")
		set(t, New(m.Another()), "gone", "2")
		names(s).Delete(v, "gone")
		names(s).Delete(v, "never was")
		return names(s).Set(v, "a", "mine")
	})
	equal(t, "the calls", calls, 1)
	equal(t, "what is stored", stored(t, s, "a"), "mine")
	equal(t, "what is deleted", must(names(s).Get(t.Context(), "gone")).Exists(), false)
}

func TestAViewReadsWhatItWrites(t *testing.T) {
	s := New(storetest.NewMemory())
	set(t, s, "a", "1")
	update(t, s, func(v *View) error {
		must(0, names(s).Put(v, "a", "2"))
		if row, err := names(s).In(v, "a"); err != nil || row.Value != "2" || !row.Exists() {
			t.Errorf("after Put: %+v, %v", row, err)
		}
		names(s).Delete(v, "a")
		equal(t, "after Delete it is there", must(names(s).In(v, "a")).Exists(), false)
		return errors.Join(names(s).Put(v, "a", "3"), names(s).Put(v, "b", "4"))
	})
	rows := rowsIn(t, names(s))
	if len(rows) != 2 || rows[0].Value != "3" || rows[1].Value != "4" {
		t.Errorf("stored is %+v", rows)
	}
}

// A change that needs an unreadable row fails, whatever it decides without it, and writes nothing;
// of many changes only that one fails.
func TestRowThatCannotBeRead(t *testing.T) {
	_, s := newMemory()
	put(t, s, s.Nodes.Key("bad"), "no row")
	_, get := s.Nodes.Get(t.Context(), "bad")
	if _, _, list := s.Nodes.List(t.Context(), ""); get == nil || list == nil {
		t.Errorf("it was read: %v, %v", get, list)
	}
	decide := func(v *View, key string) error {
		equal(t, key+" is there", s.Nodes.Row(v, key).Exists(), false)
		return names(s).Put(v, key, "written")
	}
	for err, want := range map[error]bool{nil: false, errors.New("decided"): false} {
		_, got := s.Update(t.Context(), "test", nil, func(v *View) error {
			return errors.Join(decide(v, "bad"), err)
		})
		if got == nil || errors.Is(got, err) != want {
			t.Errorf("with %v: %v", err, got)
		}
	}
	last, err := s.UpdateEach(t.Context(), []string{"a", "bad", "c"}, Each{One: decide})
	if last == 0 || err == nil {
		t.Errorf("changed until %d, %v", last, err)
	}
	for key, want := range map[string]bool{"a": true, "bad": false, "c": true} {
		equal(t, key+" is there", must(names(s).Get(t.Context(), key)).Exists(), want)
	}
}

// A change that fails or panics by itself, or is too large for a transaction, does not stop the
// others.
func TestUpdateEach(t *testing.T) {
	s := New(storetest.NewMemory())
	bad := errors.New("cannot be decided")
	keys := []string{"a", "bad", "large", "panic", "b"}
	last, err := s.UpdateEach(t.Context(), keys, Each{
		Ahead: func(key string) []string { return []string{s.Nodes.Key(key)} },
		One: func(v *View, key string) error {
			n := flexnode.Node{UID: key}
			switch key {
			case "bad":
				return bad
			case "panic":
				panic("a fault")
			case "large":
				n.Reason = strings.Repeat("x", kv.MaxBytes)
			}
			return s.Nodes.Put(v, key, n)
		},
	})
	if !errors.Is(err, bad) || !errors.Is(err, ErrTooLarge) || !errors.Is(err, ErrCrash) ||
		!strings.Contains(err.Error(), "change large") {
		t.Errorf("the error: %v", err)
	}
	if rows, at, err := s.Nodes.List(t.Context(), ""); err != nil || len(rows) != 2 || at != last {
		t.Errorf("%d rows at %d, the last change at %d: %v", len(rows), at, last, err)
	}
}

// Concurrent transactions have the same result as sequential ones.
func TestUpdateEachTogether(t *testing.T) {
	m, s := newMemory()
	const nodes, together = 50, 4
	bad := errors.New("cannot be decided")
	var keys []string
	for i := range nodes {
		keys = append(keys, fmt.Sprintf("%02d", i))
	}
	var meeting sync.WaitGroup
	meeting.Add(together)
	var calls atomic.Int64
	each := Each{Together: together, One: func(v *View, key string) error {
		if calls.Add(1) <= together {
			meeting.Done()
			meeting.Wait() // for ever, if they were made one after the other
		}
		if key == "07" || key == "31" {
			return bad
		}
		return s.Nodes.Put(v, key, flexnode.Node{UID: key})
	}}
	last, err := s.UpdateEach(t.Context(), keys, each)
	if !errors.Is(err, bad) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("the error: %v", err)
	}
	if rows, at, err := s.Nodes.List(t.Context(), ""); err != nil || len(rows) != nodes-2 ||
		at != last {
		t.Errorf("%d rows at %d, the last change at %d: %v", len(rows), at, last, err)
	}
	m.Kill()
	calls.Store(together)
	if last, err := s.UpdateEach(t.Context(), keys, each); last != 0 ||
		!errors.Is(err, storetest.ErrKilled) || strings.Count(err.Error(), "\n") >= together {
		t.Errorf("without a store: %d, %v", last, err)
	}
}

// Rows that others change meanwhile are decided on again; a fence that does not hold and a store
// that does not answer end it.
func TestUpdateEachBesideOthers(t *testing.T) {
	m, s := newMemory()
	fence := Condition{Key: "/fence", Revision: 0}
	interfere := true
	one := func(v *View, key string) error {
		v.Fence(fence)
		row := s.Nodes.Row(v, key)
		if interfere {
			interfere = false
			putNode(t, s, key, flexnode.Node{UID: key, Reason: "of others"})
		}
		row.Value.UID = "ours"
		return s.Nodes.Put(v, key, row.Value)
	}
	keys := []string{"a", "b", "c"}
	last, err := s.UpdateEach(t.Context(), keys, Each{One: one})
	row, _ := s.Nodes.Get(t.Context(), "a")
	if last <= row.Revision || err != nil || row.Value.UID != "ours" ||
		row.Value.Reason != "of others" {
		t.Errorf("%d, %v: %+v", last, err, row)
	}
	fence.Revision = 7
	last, err = s.UpdateEach(t.Context(), keys, Each{One: one})
	equal(t, "the last change without its fence", last, 0)
	isError(t, "without its fence", err, ErrFenced)
	m.Kill()
	if last, err := s.UpdateEach(t.Context(), keys, Each{One: one}); last != 0 ||
		!errors.Is(err, storetest.ErrKilled) || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("without a store: %d, %v", last, err)
	}
}

// equal reports what is other than it should be.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// refused reports that something has not failed, or with an error without a part.
func refused(t testing.TB, what string, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: %v, want %q", what, err, part)
	}
}

// isError reports an error that is another one than it should be.
func isError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
