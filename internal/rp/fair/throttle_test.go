package fair

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(1_800_000_000, c.nanos.Load()) }
func (c *clock) pass(d time.Duration) { c.nanos.Add(int64(d)) }

func newThrottle(t *testing.T, limits Requests) (*Throttle, *clock) {
	t.Helper()
	c := &clock{}
	return NewThrottle(limits, c.now), c
}

// let is how many of so many requests are let in.
func let(v func() Verdict, requests int) int {
	n := 0
	for range requests {
		if v().After == 0 {
			n++
		}
	}
	return n
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	throttle, c := newThrottle(t, Requests{
		Principal: Rates{Reads: Rate{10, 2}, Writes: Rate{3, 1}, Lists: Rate{1, .1}},
		Node:      Rate{4, 1}, Refreshes: Rate{2, .1}, Reports: Rate{3, 1},
		Exceptions: map[string]Rates{
			"BIG": {Reads: Rate{100, 10}},
		},
	})
	of := func(k Kind, principal string) func() Verdict {
		return func() Verdict { return throttle.TakePrincipal(k, principal) }
	}
	for _, tt := range []struct {
		name string
		v    func() Verdict
		want int
	}{
		{"a burst", of(Reads, "p"), 10},
		{"other kinds", of(Writes, "p"), 3},
		{"a kind without a limit", of(Deletes, "p"), 1000},
		{"another principal", of(Reads, "q"), 10},
		{"a subscription without a limit",
			func() Verdict { return throttle.TakeSubscription(Reads, "p") }, 1000},
		{"an exception", of(Reads, "big"), 100},
		{"what an exception leaves out", of(Writes, "big"), 3},
		{"a node", func() Verdict { return throttle.TakeNode(OfNode, "n") }, 4},
		{"its refreshes", func() Verdict { return throttle.TakeNode(Refreshes, "n") }, 2},
		{"its reports", func() Verdict { return throttle.TakeNode(Reports, "n") }, 3},
		{"another node", func() Verdict { return throttle.TakeNode(OfNode, "m") }, 4},
	} {
		if got := let(tt.v, 1000); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	v := throttle.TakePrincipal(Reads, "p")
	if v.After != 500*time.Millisecond || v.Begun ||
		v.Policy != "FlexNodeReads" || v.Left != 0 {
		t.Errorf("%+v", v)
	}
	if v := throttle.TakePrincipal(Lists, "p"); v.After != 0 || v.Begun {
		t.Errorf("%+v", v)
	}
	if v := throttle.TakePrincipal(Lists, "p"); v.After != 10*time.Second || !v.Begun {
		t.Errorf("the first that is refused: %+v", v)
	}
	c.pass(3 * time.Second)
	if got := let(of(Reads, "p"), 1000); got != 6 {
		t.Errorf("three seconds later: %d", got)
	}
}

// What one subscription's callers ask is bounded together, beside what each of them may ask.
func TestBucketOfASubscription(t *testing.T) {
	t.Parallel()
	throttle, c := newThrottle(t, Requests{
		Principal:    Rates{Writes: Rate{1, 1}},
		Subscription: Rates{Writes: Rate{15, 1}},
		Exceptions:   map[string]Rates{"large": {Writes: Rate{1000, 1}}},
	})
	take := func(subscription string) int {
		return let(func() Verdict { return throttle.TakeSubscription(Writes, subscription) }, 2000)
	}
	if s, again, other, large := take("s"), take("s"), take("s2"), take("large"); s != 15 ||
		again != 0 || other != 15 || large != 1000 {
		t.Error(s, again, other, large)
	}
	c.pass(5 * time.Second)
	if n := take("s"); n != 5 {
		t.Errorf("what was refused was counted: %d", n)
	}
	c.pass(5 * time.Second)
	v := throttle.TakeSubscription(Writes, "s")
	if v.Policy != "FlexNodeSubscriptionWrites" || v.Left != 4 {
		t.Errorf("%+v", v)
	}
}

// A caller without an id has a bucket of his own, and not one of a subscription.
func TestCallerWithoutAnID(t *testing.T) {
	t.Parallel()
	throttle, _ := newThrottle(t, Requests{
		Principal:    Rates{Writes: Rate{10, 1}},
		Subscription: Rates{Writes: Rate{100, 1}},
	})
	nobody := let(func() Verdict { return throttle.TakePrincipal(Writes, "") }, 1000)
	nowhere := let(func() Verdict { return throttle.TakeSubscription(Writes, "") }, 1000)
	if nobody != 10 || nowhere != 100 {
		t.Errorf("without an id %d, without a subscription %d", nobody, nowhere)
	}
}

// However many callers come, a bounded number is remembered; who floods is among them.
func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	throttle, _ := newThrottle(t, Requests{
		Principal: Rates{Reads: Rate{5, 1}}, Node: Rate{5, 1},
	})
	flood := 0
	for n := range remembered * 3 {
		throttle.TakePrincipal(Reads, fmt.Sprint("p", n))
		throttle.TakeNode(OfNode, fmt.Sprint("n", n))
		if throttle.TakeNode(OfNode, "flood").After == 0 {
			flood++
		}
	}
	for _, n := range []int{throttle.buckets.Len(), throttle.nodes.Len()} {
		if n != remembered {
			t.Errorf("%d are remembered", n)
		}
	}
	if flood != 5 {
		t.Errorf("who floods was let in %d times", flood)
	}
}

// However small a rate is, or large, a bucket gives its burst, and then one at a time.
func TestRates(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{
		{1, 1e-12}, {1 << 40, 1e-12}, {3, .3}, {3, 7}, {2, 1e12}, {math.MaxInt, 1e12},
	} {
		var b bucket
		now, burst := time.Duration(math.MaxInt64/4), min(r.Burst, 1000)
		for n := range burst {
			if v := b.take(r, now); v.After != 0 || v.Left != r.Burst-n-1 {
				t.Fatalf("%+v: %+v for the number %d", r, v, n)
			}
		}
		if r.Burst > burst {
			continue
		}
		v := b.take(r, now)
		if v.After < time.Millisecond || !v.Begun || v.Of != r {
			t.Errorf("%+v: then %+v", r, v)
		}
		if v := b.take(r, now+v.After); v.After != 0 {
			t.Errorf("%+v: at the time that was told %+v", r, v)
		}
	}
}

// A bucket takes few bytes, all told: there may be one for each of 20,000 nodes.
func TestBucketsAreSmall(t *testing.T) {
	const each = 320
	limits := DefaultLimits().Requests
	before := heap()
	throttle := NewThrottle(limits, time.Now)
	for n := range 3 * remembered {
		throttle.TakeNode(OfNode, fmt.Sprint("subscription/group/cluster/node-", n))
	}
	bytes := (int(heap()) - int(before)) / throttle.nodes.Len()
	t.Logf("%d bytes", bytes)
	if bytes > each {
		t.Errorf("a bucket takes %d bytes, more than %d", bytes, each)
	}
	runtime.KeepAlive(throttle)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestBucketsAtOnce(t *testing.T) {
	t.Parallel()
	throttle, _ := newThrottle(t, Requests{Principal: Rates{Reads: Rate{50, 1}}})
	var in atomic.Int64
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			in.Add(int64(let(func() Verdict { return throttle.TakePrincipal(Reads, "p") }, 100)))
		})
	}
	running.Wait()
	if in.Load() != 50 {
		t.Error(in.Load())
	}
}
