package fair

import (
	"math"
	"sync"
	"time"
)

// bucket is a token bucket; the zero value is full. Its times are since the throttle was made.
type bucket struct {
	mu    sync.Mutex
	full  time.Duration // when it is full again
	quiet time.Duration // until when it is not told again that too much is asked
}

// tellAgain is the time between reports that a caller sends too many requests.
const tellAgain = time.Minute

// take takes a token at a time, or tells when there will be one.
func (b *bucket) take(r Rate, now time.Duration) Verdict {
	each := r.each()
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := max(0, b.full-now) // time, in place of tokens
	room := time.Duration(r.Burst) * each
	if missing <= room-each {
		b.full = now + missing + each
		return Verdict{Left: int((room - missing - each) / each)}
	}
	v := Verdict{Of: r, After: max(time.Millisecond, missing+each-room)}
	if now >= b.quiet {
		b.quiet, v.Begun = now+tellAgain, true
	}
	return v
}

// each is the time between two tokens: so much at most that the time of a whole burst, after now, is
// a time.
func (r Rate) each() time.Duration {
	most := float64(math.MaxInt64/4) / float64(r.Burst)
	return max(1, time.Duration(min(float64(time.Second)/r.PerSecond, most)))
}
