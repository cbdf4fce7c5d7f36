// Package wait waits, and says for how long.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits, and reports whether ctx has not ended.
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

// Jitter returns a random time from half of d to one and a half of it, so that those that began
// together do not go on together.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d+1) // no secret
}

// Backoff is a pause that doubles each time, from Base up to Max.
type Backoff struct {
	Base, Max time.Duration
	next      time.Duration
}

// Next returns the pause to be made now, with jitter.
func (b *Backoff) Next() time.Duration {
	now := min(max(b.next, b.Base), b.Max)
	b.next = 2 * now
	return Jitter(now)
}

// Reset begins again with Base.
func (b *Backoff) Reset() { b.next = 0 }
