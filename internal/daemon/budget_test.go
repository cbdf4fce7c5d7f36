package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// drifting makes things drift again and again until they are repaired.
func (b *bench) drifting(every map[string]time.Duration) {
	since := map[string]time.Time{}
	b.check = func(context.Context) (Finding, error) {
		found := Finding{}
		for _, thing := range []string{"file", "unit"} {
			if d, ok := every[thing]; ok && time.Since(since[thing]) >= d {
				found.Repair = append(found.Repair, thing)
			}
		}
		return found, nil
	}
	b.repair = func(_ context.Context, things []string) error {
		for _, thing := range things {
			since[thing] = time.Now()
		}
		return nil
	}
}

// One thing is repaired three times in an hour, whatever else drifts and however clean the checks
// in between are.
func TestBudgetPerThingAndTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.drifting(map[string]time.Duration{"file": 5 * time.Minute, "unit": 25 * time.Minute})
		b.start()
		b.sleep(59 * time.Minute)
		if n := len(b.times("repair file")); n != 3 {
			t.Errorf("the file was repaired %d times in an hour", n)
		}
		b.set(func() {
			if diff := cmp.Diff([]string{"file", "unit"}, b.exhausted); diff != "" {
				t.Errorf("exhausted: %s", diff)
			}
		})
		b.sleep(5 * time.Hour)
		if n := len(b.times("repair file")); n < 15 || n > 18 {
			t.Errorf("the file was repaired %d times in six hours", n)
		}
	})
}

// A drift that is only reported is not repaired.
func TestReported(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.check = func(context.Context) (Finding, error) {
			return Finding{Drift: []string{"file"}}, nil
		}
		b.start()
		b.sleep(time.Hour)
		if at := b.times("repair"); len(at) != 0 {
			t.Errorf("repaired at %v", at)
		}
	})
}

// A repair that was not carried out does not count: while another verb has the lock, or while it
// fails, the thing is tried again, with pauses.
func TestRepairNotDone(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		from, to int
	}{
		"busy":   {busy, 80, 125},
		"failed": {errors.New("the disk is full"), 6, 10},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.drifting(map[string]time.Duration{"file": 0})
				repair := b.repair
				b.repair = func(context.Context, []string) error { return test.err }
				b.start()
				b.sleep(10 * time.Minute)
				if n := len(b.times("repair")); n < test.from || n > test.to {
					t.Errorf("%d repairs in ten minutes", n)
				}
				b.take()
				b.set(func() {
					if len(b.exhausted) > 0 {
						t.Errorf("exhausted: %v", b.exhausted)
					}
					b.repair = repair
				})
				b.sleep(30 * time.Minute)
				if n := len(b.times("repair")); n != 3 {
					t.Errorf("%d repairs once they succeed", n)
				}
			})
		})
	}
}

// The next daemon has what is left of the budget.
func TestBudgetRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk []byte
		open := func() *Budget {
			b := &Budget{Most: 3, Within: time.Hour}
			if disk != nil {
				if err := json.Unmarshal(disk, &b.Done); err != nil {
					t.Fatal(err)
				}
			}
			b.Save = func(done map[string][]time.Time) {
				var err error
				if disk, err = json.Marshal(done); err != nil {
					t.Error(err)
				}
			}
			return b
		}
		for range 3 {
			allowed, refused := open().Take([]string{"file"})
			if len(allowed) != 1 || len(refused) != 0 {
				t.Errorf("allowed %v, refused %v", allowed, refused)
			}
			time.Sleep(time.Minute)
		}
		b := open()
		for i, want := range [][]string{{"file"}, nil} { // it is said once
			allowed, refused := b.Take([]string{"file"})
			if len(allowed) != 0 || !cmp.Equal(refused, want) {
				t.Errorf("take %d: allowed %v, refused %v", i, allowed, refused)
			}
		}
		b.Return([]string{"file", "never taken"})
		if allowed, _ := open().Take([]string{"file"}); len(allowed) != 1 {
			t.Error("what was given back cannot be taken")
		}
		time.Sleep(time.Hour)
		if things := open().Exhausted(); len(things) != 0 {
			t.Errorf("exhausted after an hour: %v", things)
		}
		if allowed, refused := open().Take([]string{"file"}); len(allowed) != 1 || len(refused) != 0 {
			t.Errorf("after an hour: allowed %v, refused %v", allowed, refused)
		}
	})
}

// A repair that fails is tried again with its pauses, also when its changes to the machine arrive
// as a hint; and the subject of a hint is checked at once.
func TestRepairFailsWithHints(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		b.check = func(context.Context) (Finding, error) {
			return Finding{Repair: []string{"unit"}}, nil
		}
		b.repair = func(context.Context, []string) error {
			select {
			case b.hints <- "unit":
			case <-ctx.Done():
			}
			return errors.New("it does not start")
		}
		b.start()
		b.sleep(20 * time.Minute)
		if n := len(b.times("repair")); n < 6 || n > 11 {
			t.Errorf("it was tried %d times in twenty minutes: %s", n, b.times("repair"))
		}
		if n := len(b.times("check")); n < 20 {
			t.Errorf("%d checks in twenty minutes", n)
		}
		for range 20 {
			b.take()
			b.hints <- "a file"
			b.sleep(maxHint + time.Millisecond)
			if len(b.times("check")) == 0 {
				t.Fatal("a hint has brought no check")
			}
			b.sleep(17 * time.Second)
		}
	})
}

// Repairs in the future, which were made before the clock was set back, exhaust nothing.
func TestBudgetAfterTheClockWasSetBack(t *testing.T) {
	later := time.Now().Add(48 * time.Hour)
	b := &Budget{Most: 3, Within: time.Hour, Save: func(map[string][]time.Time) {},
		Done: map[string][]time.Time{"file": {later, later, later}}}
	if things := b.Exhausted(); len(things) > 0 {
		t.Errorf("exhausted: %v", things)
	}
	if allowed, _ := b.Take([]string{"file"}); len(allowed) != 1 {
		t.Errorf("allowed: %v", allowed)
	}
}
