package front

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The interval grows with the agents; an agent that was allowed to wait pauses as little as
// possible.
func TestInterval(t *testing.T) {
	for _, test := range []struct {
		agents, perSecond int
		applied           bool
		waited, want      time.Duration
	}{
		{0, 4000, false, 0, 30 * time.Second},
		{120_000, 4000, false, 0, 30 * time.Second},
		{120_001, 4000, false, 0, 31 * time.Second},
		{400_000, 4000, false, 0, 100 * time.Second},
		{100_000_000, 4000, false, 0, 5 * time.Minute},
		{100_000_000, 0, false, 0, 30 * time.Second},
		{10, 4000, true, 0, time.Second},
		{10, 4000, true, 25 * time.Second, time.Second},
		{120_000, 4000, true, 25 * time.Second, 5 * time.Second},
		{120_000, 4000, true, 3 * time.Second, 27 * time.Second},
		{400_000, 4000, true, 25 * time.Second, 75 * time.Second},
		{100_000, 0, true, 25 * time.Second, time.Second},
	} {
		got := pauseOf(test.agents, test.perSecond, test.applied, test.waited)
		equal(t, fmt.Sprintf("%+v", test), got, test.want)
	}
}

// Each agent counts once, until it is expected to poll again.
func TestExpected(t *testing.T) {
	var e expected
	const begin = 1_800_000_000
	check := func(now, want int64) {
		t.Helper()
		equal(t, fmt.Sprintf("after %d s", now), e.count(begin+now), int(want))
	}
	check(0, 0)
	e.add(begin, 30*time.Second)
	e.add(begin, 40*time.Second)
	e.add(begin+1, maxPollInterval)
	check(0, 3) // a clock that goes back
	check(29, 3)
	check(30, 2)
	check(40, 1)
	check(300, 1)
	check(301, 0)
	e.add(begin+302, time.Second)
	check(100_000, 0)
	e.add(begin+100_000, time.Second)
	check(0, 0) // a clock that was far ahead
}

// crowd simulates agents as the documents describe them: the next poll follows after the interval
// in the answer, plus or minus a third; after a failure, after a growing pause.
type crowd struct {
	due     map[int64][]int // agents by the second of their next poll
	held    map[int64][]int // waiting agents, by the second of their answer
	waiting int
	failed  []int // how often each has failed one after the other
	random  *rand.Rand
	polls   map[int64]int // that were answered, by second
}

func newCrowd(agents int) *crowd {
	c := &crowd{
		due: map[int64][]int{}, held: map[int64][]int{}, failed: make([]int, agents),
		polls: map[int64]int{}, random: rand.New(rand.NewPCG(1, 2)),
	}
	for i := range agents { // the first poll of an agent
		first := c.random.Int64N(40)
		c.due[first] = append(c.due[first], i)
	}
	return c
}

// run makes agents poll each second, and wait for a time; a nil Pace does not answer.
func (c *crowd) run(from, to int64, p *Pace, wait int64) {
	for now := from; now < to; now++ {
		for _, agent := range c.due[now] {
			switch {
			case p == nil:
				c.next(agent, now+c.failure(agent))
			case wait > 0:
				c.held[now+wait] = append(c.held[now+wait], agent)
				c.waiting++
			default:
				c.answer(p, agent, now, 0)
			}
		}
		for _, agent := range c.held[now] {
			c.waiting--
			c.answer(p, agent, now, wait)
		}
		delete(c.due, now)
		delete(c.held, now)
	}
}

func (c *crowd) next(agent int, at int64) { c.due[at] = append(c.due[at], agent) }

func (c *crowd) answer(p *Pace, agent int, now, waited int64) {
	c.failed[agent] = 0
	c.polls[now]++
	pause := p.tell(time.Unix(now, 0), waited > 0, time.Duration(waited)*time.Second, c.waiting)
	seconds := pause.Seconds() * (2 + 2*c.random.Float64()) / 3
	c.next(agent, now+max(1, int64(seconds+0.5)))
}

func (c *crowd) failure(agent int) int64 {
	c.failed[agent]++
	longest := min(300, 30<<min(c.failed[agent]-1, 4))
	return 1 + c.random.Int64N(int64(longest))
}

// rate returns the mean and the max number of polls in a second.
func (c *crowd) rate(from, to int64) (mean, most int) {
	total := 0
	for now := from; now < to; now++ {
		total += c.polls[now]
		most = max(most, c.polls[now])
	}
	return total / int(to-from), most
}

// 100,000 agents converge to the rate of a replica from any start: a replica that knows none of
// them, and one that comes back after a while.
func TestAgentsConverge(t *testing.T) {
	t.Parallel()
	const agents, target = 100_000, 1000
	check := func(what string, mean, most, least, bound int) {
		t.Helper()
		t.Logf("%s: %d polls a second, %d at most", what, mean, most)
		if mean < least || mean > target*11/10 || most > bound {
			t.Errorf("%s: %d polls a second, %d at most; want %d, and %d", what, mean, most, target,
				bound)
		}
	}
	c, p := newCrowd(agents), NewPace(target)
	c.run(0, 900, p, 0)
	mean, most := c.rate(400, 900)
	check("in the long run", mean, most, target*8/10, target*13/10)

	c.run(900, 1020, nil, 0) // the replica is away for two minutes
	p = NewPace(target)
	p.Expect(agents)
	c.run(1020, 2000, p, 0)
	_, returned := c.rate(1020, 1080) // agents that paused after a failure
	_, herd := c.rate(1080, 1420)
	t.Logf("%d in the first minute, then %d at most", returned, herd)
	mean, most = c.rate(1420, 2000)
	check("after a restart", mean, most, target*8/10, target*13/10)
	if returned > target*5/2 || herd > target*3/2 {
		t.Errorf("after a restart %d come in a second, later %d", returned, herd)
	}
}

// Few agents poll at the documents' interval, and many waiting ones are paced as well.
func TestPaceOfFewAndOfThoseThatWait(t *testing.T) {
	t.Parallel()
	few, p := newCrowd(3000), NewPace(1000)
	few.run(0, 600, p, 0)
	if mean, _ := few.rate(300, 600); mean < 90 || mean > 110 {
		t.Errorf("3000 agents poll %d times a second, want 100", mean)
	}
	many, p := newCrowd(100_000), NewPace(1000)
	many.run(0, 900, p, 25)
	if mean, most := many.rate(400, 900); mean < 800 || mean > 1100 || most > 1500 {
		t.Errorf("100,000 that wait poll %d times a second, %d at most; want 1000", mean, most)
	}
}
