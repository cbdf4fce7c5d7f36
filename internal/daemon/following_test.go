package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A configuration that was received is taken up at once, not at the next poll of the file.
func TestReceived(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.start()
		b.sleep(time.Second)
		b.take()
		b.set(func() { b.changed = true })
		b.received <- struct{}{}
		b.sleep(0)
		if diff := cmp.Diff([]string{"reconcile", "check"}, b.take()); diff != "" {
			t.Error(diff)
		}
	})
}

// A machine whose configuration was deleted is given back: what is under way is interrupted, and
// what could not be undone is tried again, and nothing else is done any more.
func TestDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.reconcile = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		failures := 3
		b.leave = func(context.Context) error {
			if failures--; failures >= 0 {
				return errors.New("a mount is busy")
			}
			return nil
		}
		b.start()
		b.sleep(time.Minute)
		b.deleted <- struct{}{}
		b.sleep(0)
		b.set(func() { b.changed = true })
		b.sleep(5 * time.Minute)
		want := []string{"reconcile", "leave", "leave", "leave", "leave"}
		if diff := cmp.Diff(want, b.take()); diff != "" {
			t.Error(diff)
		}
		<-b.ended
		if b.end.Kind != transition.Deleted {
			t.Errorf("it ends with %v", b.end)
		}
	})
}

// Another verb that is at work is waited for.
func TestDeletedWhileBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		waits := true
		b.leave = func(context.Context) error {
			if waits {
				waits = false
				return busy
			}
			return nil
		}
		b.start()
		b.sleep(time.Second)
		b.deleted <- struct{}{}
		b.sleep(10 * time.Second)
		if n := len(b.times("leave")); n != 2 {
			t.Errorf("%d times", n)
		}
		<-b.ended
	})
}

// A process that finishes what another has begun ends as that would have.
func TestDeletedIsFinished(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.reconcile = func(context.Context) error {
			return &transition.Outcome{Kind: transition.Deleted}
		}
		b.start()
		<-b.ended
		if b.end.Kind != transition.Deleted {
			t.Errorf("it ends with %v", b.end)
		}
	})
}
