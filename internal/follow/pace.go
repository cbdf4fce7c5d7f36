package follow

import (
	"math/rand/v2"
	"time"
)

const (
	// usualInterval is how often is asked unless the provider says otherwise, with a third more or
	// less: 20 to 40 seconds.
	usualInterval = 30 * time.Second
	// The least and the most that a provider may say.
	leastInterval = 5 * time.Second
	mostInterval  = time.Hour
	// again is the most that is rested between two polls of which the first was held back.
	again = time.Second
)

// pace decides when is asked next. Timers do not follow the clock, so that setting it changes
// nothing.
type pace struct {
	interval time.Duration
	failures int
}

// first is the pause after a start: machines that came up together do not ask together.
func (p *pace) first() time.Duration {
	return rand.N(p.usual() * 4 / 3) //nolint:gosec // no secret
}

// after is the pause after an answer.
func (p *pace) after(a Answer) time.Duration {
	p.failures = 0
	if a.Interval > 0 {
		p.interval = min(max(a.Interval, leastInterval), mostInterval)
	}
	if a.Waited {
		return rand.N(again) //nolint:gosec // no secret
	}
	return p.usual()*2/3 + rand.N(p.usual()*2/3) //nolint:gosec // no secret
}

// afterError is the pause after a failure: longer each time, up to five minutes, and at least what
// the server asks for.
func (p *pace) afterError(err error) time.Duration {
	pause := min(p.usual()<<min(p.failures, 10), max(maxPause, p.usual()))
	p.failures++
	return max(pause*2/3+rand.N(pause/3), pauseOf(err)) //nolint:gosec // no secret
}

func (p *pace) usual() time.Duration {
	if p.interval == 0 {
		return usualInterval
	}
	return p.interval
}
