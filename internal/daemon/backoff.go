package daemon

import (
	"math/rand/v2"
	"time"
)

const (
	retryFirst = 5 * time.Second
	retryMost  = 5 * time.Minute
	// spread is by how much a pause is longer or shorter than the one meant.
	spread = 0.2
)

// backoff is a pause that doubles each time, up to retryMost.
type backoff struct{ next time.Duration }

// pause returns the pause to be made now.
func (b *backoff) pause() time.Duration {
	now := max(b.next, retryFirst)
	b.next = min(2*now, retryMost)
	return jitter(now)
}

// reset begins again with the shortest pause.
func (b *backoff) reset() { b.next = 0 }

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - spread + 2*spread*rand.Float64()))
}
