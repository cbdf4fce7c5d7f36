package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A hint makes a check after a second, also one that comes while a check is running which may not
// have seen what it is about. Many hints make one.
func TestHint(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start()
		b.sleep(10 * time.Second)
		b.take()
		for range 5 {
			b.hints <- "the Node was deleted"
		}
		b.sleep(hintPause + time.Millisecond)
		if diff := cmp.Diff([]string{"check"}, b.take()); diff != "" {
			t.Errorf("after a hint: %s", diff)
		}
		b.set(func() {
			b.check = func(ctx context.Context) (Finding, error) {
				time.Sleep(500 * time.Millisecond)
				return Finding{}, nil
			}
		})
		b.sleep(2 * time.Minute)
		for b.take(); len(b.take()) == 0; { // until a check is running
			b.sleep(100 * time.Millisecond)
		}
		b.hints <- "the Node was deleted"
		b.sleep(hintPause + time.Second)
		if diff := cmp.Diff([]string{"check"}, b.take()); diff != "" {
			t.Errorf("after a hint during a check: %s", diff)
		}
		b.sleep(time.Hour)
		if n := len(b.take()); n < 45 || n > 75 {
			t.Errorf("%d checks in an hour without hints", n)
		}
	})
}

// Hints that do not end neither keep a check from being made nor make one each second.
func TestHintsWithoutEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start()
		b.sleep(10 * time.Second)
		b.take()
		for range 600 {
			b.hints <- "a file"
			b.sleep(500 * time.Millisecond)
		}
		if n := len(b.take()); n < 30 || n > 45 {
			t.Errorf("%d checks in five minutes", n)
		}
		b.sleep(10 * time.Minute)
		b.take()
		b.hints <- "a file"
		b.sleep(hintPause + time.Millisecond)
		if diff := cmp.Diff([]string{"check"}, b.take()); diff != "" {
			t.Errorf("after a rest: %s", diff)
		}
	})
}

// How often is checked is what the last check says; one that fails says nothing.
func TestCheckInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.check = func(context.Context) (Finding, error) { return Finding{Every: time.Hour}, nil }
		b.start()
		b.sleep(24 * time.Hour)
		if n := len(b.times("check")); n < 20 || n > 31 {
			t.Errorf("%d checks in a day", n)
		}
		b.set(func() { b.changed = true })
		b.sleep(pollEvery)
		b.take()
		b.hints <- "a file"
		b.sleep(hintPause + time.Millisecond)
		if diff := cmp.Diff([]string{"check"}, b.take()); diff != "" {
			t.Errorf("after a hint: %s", diff)
		}
		b.set(func() {
			b.check = func(context.Context) (Finding, error) { return Finding{}, errors.New("wrong") }
		})
		b.sleep(2 * time.Hour)
		if n := len(b.times("check")); n < 35 {
			t.Errorf("%d checks in more than half an hour of failures", n)
		}
	})
}
