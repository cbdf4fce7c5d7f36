// Package wait waits, with pauses that grow and vary.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, and reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// Jitter returns a random time between half of d and one and a half of it, so that processes that
// started together do not stay in step.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d+1) // no secret
}

// Backoff is a pause that doubles each time, from Base up to Max.
type Backoff struct {
	Base, Max time.Duration
	next      time.Duration
}

// Next returns the next pause, with jitter.
func (b *Backoff) Next() time.Duration {
	now := min(max(b.next, b.Base), b.Max)
	b.next = 2 * now
	return Jitter(now)
}

// Reset restarts from Base.
func (b *Backoff) Reset() { b.next = 0 }
