package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

func leased(t *testing.T, m Backend, key string, ttl time.Duration) Lease {
	t.Helper()
	l, err := m.Lease(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Commit(t.Context(), nil, []Write{{Key: key, Value: []byte("x"), Lease: l.ID()}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func there(t *testing.T, m *storetest.Memory, key string) bool {
	t.Helper()
	got, _, err := m.Read(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	_, ok := got[key]
	return ok
}

func ended(l Lease) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

func TestMemoryLeaseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		l := leased(t, m, "k", 10*time.Second)
		time.Sleep(time.Hour)
		if !there(t, m, "k") || ended(l) || time.Until(l.Until()) < 6*time.Second {
			t.Errorf("it was not kept: %v, until %v", ended(l), time.Until(l.Until()))
		}
		if err := l.Close(); err != nil || there(t, m, "k") || !ended(l) {
			t.Errorf("it was not ended: %v", err)
		}
	})
}

func TestMemoryLeaseOfAKilledProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		its := m.Another()
		l := leased(t, its, "k", 10*time.Second)
		its.Kill()
		time.Sleep(6 * time.Second)
		if !there(t, m, "k") {
			t.Error("it ended early")
		}
		time.Sleep(5 * time.Second)
		if there(t, m, "k") {
			t.Error("it has not ended")
		}
		if _, _, err := its.Read(t.Context(), "k"); err == nil {
			t.Error("a killed process reads")
		}
		if ended(l) {
			t.Error("a killed process was told")
		}
	})
}

// A process that was stopped for long sees that its lease has ended only when it goes on.
func TestMemoryLeaseOfAPausedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		its := m.Another()
		l := leased(t, its, "k", 10*time.Second)
		its.Pause()
		time.Sleep(time.Minute)
		if there(t, m, "k") || ended(l) {
			t.Errorf("there: %v, told: %v", there(t, m, "k"), ended(l))
		}
		its.Resume()
		synctest.Wait()
		if !ended(l) {
			t.Error("it was not told")
		}
	})
}

// Renewals that fail for less than the lease's time do no harm.
func TestMemoryLeaseSurvivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		its := m.Another()
		l := leased(t, its, "k", 10*time.Second)
		its.Before(func(storetest.Call) error { return errors.New("no route") })
		time.Sleep(6 * time.Second)
		its.Before(nil)
		time.Sleep(time.Minute)
		if !there(t, m, "k") || ended(l) {
			t.Error("it has ended")
		}
		its.Before(func(storetest.Call) error { return errors.New("no route") })
		time.Sleep(11 * time.Second)
		if there(t, m, "k") || !ended(l) {
			t.Error("it has not ended")
		}
	})
}

// A key that is written without the lease is not the lease's any more.
func TestMemoryLeaseLetsGo(t *testing.T) {
	m := storetest.NewMemory()
	l := leased(t, m, "k", time.Minute)
	if _, err := m.Commit(t.Context(), nil, []Write{{Key: "k", Value: []byte("y")}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil || !there(t, m, "k") {
		t.Errorf("the key has ended with its former lease; %v", err)
	}
	_, err := m.Commit(t.Context(), nil, []Write{{Key: "k", Lease: l.ID()}})
	if err == nil {
		t.Error("a lease that has ended is taken")
	}
}

func TestMemoryPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		its := m.Another()
		its.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := its.Read(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		go func() {
			time.Sleep(time.Minute)
			its.Resume()
		}()
		began := time.Now()
		if there(t, its, "k"); time.Since(began) != time.Minute {
			t.Errorf("it waited %v", time.Since(began))
		}
	})
}

func TestMemoryCopy(t *testing.T) {
	m := storetest.NewMemory()
	s := New(m)
	set(t, s, "a", "1")
	set(t, s, "a", "2")
	set(t, s, "b", "1")
	last := drop(t, s, "b")
	leased(t, m, "process", time.Minute)
	restored := m.Copy()
	want, _, _ := m.Read(t.Context(), names(s).Key("a"))
	page, err := restored.Scan(t.Context(), "", "", 10, 0)
	if err != nil || len(page.KVs) != 1 || page.Revision != last+1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if diff := cmp.Diff(want[names(s).Key("a")], page.KVs[0]); diff != "" {
		t.Error(diff)
	}
	if _, err := restored.Scan(t.Context(), "", "", 10, last); !errors.Is(err, ErrCompacted) {
		t.Error(err)
	}
	if again := set(t, New(restored), "a", "3"); again != last+2 {
		t.Errorf("the next revision is %d after %d", again, last+1)
	}
}

func TestMemoryThatIsFull(t *testing.T) {
	m := storetest.NewMemory()
	s := New(m)
	set(t, s, "a", "1")
	m.SetQuota(200)
	_, err := s.Update(t.Context(), "large", nil, func(v *View) error {
		return names(s).Set(v, "b", string(make([]byte, 100)))
	})
	if !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if row, err := names(s).Get(t.Context(), "a"); err != nil || row.Value != "1" {
		t.Errorf("%+v, %v", row, err)
	}
	drop(t, s, "a")
	if h, err := m.Health(t.Context()); err != nil || h.Size != 0 || h.Quota != 200 || h.Full {
		t.Errorf("%+v, %v", h, err)
	}
}
