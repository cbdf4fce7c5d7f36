package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A program that runs when a newer one gives the rows another form writes nothing more, whatever
// way it takes; beside a newer one that keeps the form, and after a restore of the store, it goes
// on.
func TestOlderProgramsAreFenced(t *testing.T) {
	t.Run("memory", func(t *testing.T) { checkFence(t, NewMemory()) })
	t.Run("etcd", func(t *testing.T) { checkFence(t, embedded(t, t.TempDir(), Options{})) })
}

func checkFence(t *testing.T, b Backend) {
	older, newer := New(b), New(b)
	if err := Migrate(t.Context(), older, Migration{}); err != nil {
		t.Fatal(err)
	}
	raise := func(version string) {
		put(t, b, newer.Meta.Key(schemaRow), version)
	}
	try := func() error {
		_, err := older.Update(t.Context(), "", nil, func(v *View) error {
			return older.PodCIDRs.Set(v, "a", "x")
		})
		return err
	}
	set(t, newer, "b", "another form is not needed for this")
	if err := try(); err != nil {
		t.Errorf("beside a newer one: %v", err)
	}
	raise("2") // as after a restore: the same version at another revision
	if err := try(); err != nil {
		t.Errorf("after the row was written again: %v", err)
	}
	raise("3")
	if err := try(); !errors.Is(err, ErrNewer) {
		t.Errorf("after the form has changed: %v", err)
	}
	_, err := older.UpdateEach(t.Context(), []string{"a"}, Each{
		One: func(v *View, key string) error { return older.PodCIDRs.Set(v, key, "y") },
	})
	if !errors.Is(err, ErrNewer) {
		t.Errorf("many together: %v", err)
	}
	_, err = older.Commit(t.Context(), nil, []Write{{Key: older.PodCIDRs.Key("a"), Delete: true}})
	if !errors.Is(err, ErrNewer) {
		t.Errorf("a commit: %v", err)
	}
	if row, err := older.PodCIDRs.Get(t.Context(), "a"); err != nil || row.Value != "x" {
		t.Errorf("it has written %q, %v", row.Value, err)
	}
	if err := newer.HoldSchema(t.Context()); !errors.Is(err, ErrNewer) {
		t.Errorf("a start: %v", err)
	}
}

// A transaction has room for the condition on the form of the rows.
func TestUpdateEachWithTheFence(t *testing.T) {
	s := New(NewMemory())
	if err := Migrate(t.Context(), s, Migration{}); err != nil {
		t.Fatal(err)
	}
	var made int
	s.Did = func(string) { made++ }
	done, err := s.UpdateEach(t.Context(), each(2*MaxWrites), Each{
		One: func(v *View, key string) error {
			_, err := s.PodCIDRs.In(v, key)
			return errors.Join(err, s.PodCIDRs.Set(v, key, "x"))
		},
	})
	if done != 2*MaxWrites || err != nil || made != 3 {
		t.Errorf("%d in %d changes, %v", done, made, err)
	}
}

// Who waits for a newer form is told of it, and not of anything else.
func TestWaitForNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		s := New(m)
		if err := Migrate(t.Context(), s, Migration{}); err != nil {
			t.Fatal(err)
		}
		told := make(chan error, 1)
		go func() { told <- s.WaitForNewer(t.Context()) }()
		put(t, m, s.Meta.Key(schemaRow), "2")
		time.Sleep(time.Minute)
		select {
		case err := <-told:
			t.Fatalf("before: %v", err)
		default:
		}
		put(t, m, s.Meta.Key(schemaRow), "3")
		if err := <-told; !errors.Is(err, ErrNewer) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := New(NewMemory()).WaitForNewer(ctx); err != nil {
			t.Errorf("after its end: %v", err)
		}
	})
}
