package kube

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff says how long to pause before the next attempt: twice as long each time, from first to most, spread by half.
type backoff struct{ first, most time.Duration }

var defaultBackoff = backoff{first: 200 * time.Millisecond, most: 5 * time.Second}

// pause waits before attempt number n, counted from 0; false when ctx ended first.
func (b backoff) pause(ctx context.Context, n int) bool {
	d := b.most
	if n < 16 {
		d = min(b.first<<n, b.most)
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
