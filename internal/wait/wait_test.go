package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("a minute took %s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if Sleep(ctx, time.Hour) || time.Since(began) != time.Minute+time.Second || Sleep(ctx, 0) {
			t.Error("it waits longer than its context")
		}
	})
}

// Pauses double up to the longest, and are spread by half.
func TestBackoff(t *testing.T) {
	b := Backoff{Base: time.Second, Max: 5 * time.Second}
	for range 100 {
		b.Reset()
		different := map[time.Duration]bool{}
		for _, s := range []time.Duration{1, 2, 4, 5, 5, 5} {
			about, is := s*time.Second, b.Next()
			if is < about/2 || is > about*3/2 {
				t.Fatalf("a pause of about %s is %s", about, is)
			}
			different[is] = true
		}
		if len(different) < 2 {
			t.Fatal("the pauses are all the same")
		}
	}
	if d := Jitter(0); d != 0 {
		t.Errorf("no pause is %s", d)
	}
}
