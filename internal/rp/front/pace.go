package front

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Pace sets the time at which agents poll again, so that this replica can serve all. It counts each
// agent once, as expected until that time.
type Pace struct {
	perSecond int
	// share is the number of agents, of all that poll the provider, that this replica expects.
	share atomic.Int64

	mu       sync.Mutex
	expected expected
}

// Limits of the mean time between polls, which each agent varies by up to a third.
const pollInterval, maxPollInterval = 30 * time.Second, 5 * time.Minute

// NewPace returns a pace of at most perSecond polls of this replica; 0 is no limit.
func NewPace(perSecond int) *Pace { return &Pace{perSecond: perSecond} }

// Expect sets the number of agents that this replica will have: after a start it has seen few.
func (p *Pace) Expect(agents int) { p.share.Store(int64(agents)) }

// Agents returns the number of agents of this replica, besides those that wait.
func (p *Pace) Agents(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expected.count(now.Unix())
}

// tell returns the pause before an agent's next poll. The present one has waited for so long, if it
// was allowed to (applied), beside other waiting polls.
func (p *Pace) tell(now time.Time, applied bool, waited time.Duration, waiting int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	agents := max(p.expected.count(now.Unix())+waiting+1, int(p.share.Load()))
	pause := pauseOf(agents, p.perSecond, applied, waited)
	p.expected.add(now.Unix(), pause)
	return pause
}

// pauseOf returns the rest of the interval in which so many agents make perSecond polls. An agent
// that may wait learns of changes at once only while it waits, so it pauses as little as the load
// allows.
func pauseOf(agents, perSecond int, applied bool, waited time.Duration) time.Duration {
	var interval time.Duration
	if perSecond > 0 {
		seconds := (agents + perSecond - 1) / perSecond
		interval = min(time.Duration(seconds)*time.Second, maxPollInterval)
	}
	if !applied {
		return max(interval, pollInterval)
	}
	return max(interval-waited, time.Second).Round(time.Second)
}

// expected counts agents until they are expected to ask again, by that second.
type expected struct {
	now   int64
	total int
	due   [512]int
}

// count returns the number that is expected after now. It ignores a clock that goes back
// a little, and forgets all when it jumps.
func (e *expected) count(now int64) int {
	if max(now-e.now, e.now-now) >= int64(len(e.due)) {
		e.total, e.due, e.now = 0, [512]int{}, now
	}
	for e.now < now {
		e.now++
		at := &e.due[e.now%int64(len(e.due))]
		e.total, *at = e.total-*at, 0
	}
	return e.total
}

func (e *expected) add(now int64, in time.Duration) {
	e.count(now)
	e.due[(e.now+int64(in/time.Second))%int64(len(e.due))]++
	e.total++
}

// tellPace adds the pause before the next poll to the answer of a GET of a node.
func (a *API) tellPace(r *request, applied bool, waited time.Duration) {
	pause := pollInterval
	if r.isPoll() {
		pause = a.Pace.tell(a.Now(), applied, waited, a.Waiters.Count())
	}
	r.answer.Header().Set("X-Ms-Flexnode-Poll-Interval", strconv.Itoa(int(pause/time.Second)))
}
