package fair

import (
	"fmt"
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
	throttle, err := NewThrottle(limits, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return throttle, c
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
		Node:      Rate{4, 1},
		Exceptions: map[string]Rates{
			"BIG": {Reads: Rate{100, 10}},
		},
	})
	of := func(k Kind, principal, subscription string) func() Verdict {
		return func() Verdict { return throttle.Take(k, principal, subscription) }
	}
	for _, tt := range []struct {
		name string
		v    func() Verdict
		want int
	}{
		{"a burst", of(Reads, "p", "s"), 10},
		{"other kinds", of(Writes, "p", "s"), 3},
		{"a kind without a limit", of(Deletes, "p", "s"), 1000},
		{"another principal", of(Reads, "q", "s"), 10},
		{"another subscription", of(Reads, "p", "s2"), 10},
		{"an exception", of(Reads, "big", "s"), 100},
		{"what an exception leaves out", of(Writes, "big", "s"), 3},
		{"a node", func() Verdict { return throttle.TakeNode("n") }, 4},
		{"another node", func() Verdict { return throttle.TakeNode("m") }, 4},
	} {
		if got := let(tt.v, 1000); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	v := throttle.Take(Reads, "p", "s")
	if v.After != 500*time.Millisecond || v.Begun ||
		len(v.Remaining) != 1 || v.Remaining[0] != (Remaining{"FlexNodeReads", 0}) {
		t.Errorf("%+v", v)
	}
	if v := throttle.Take(Lists, "p", "s"); v.After != 0 || v.Begun {
		t.Errorf("%+v", v)
	}
	if v := throttle.Take(Lists, "p", "s"); v.After != 10*time.Second || !v.Begun {
		t.Errorf("the first that is refused: %+v", v)
	}
	c.pass(3 * time.Second)
	if got := let(of(Reads, "p", "s"), 1000); got != 6 {
		t.Errorf("three seconds later: %d", got)
	}
}

// What one subscription's callers ask is bounded together, and who is refused loses nothing by it.
func TestBucketOfASubscription(t *testing.T) {
	t.Parallel()
	throttle, c := newThrottle(t, Requests{
		Principal:    Rates{Writes: Rate{10, 1}},
		Subscription: Rates{Writes: Rate{15, 1}},
		Exceptions:   map[string]Rates{"large": {Writes: Rate{1000, 1}}},
	})
	take := func(principal, subscription string) int {
		return let(func() Verdict { return throttle.Take(Writes, principal, subscription) }, 100)
	}
	if p, q, r := take("p", "s"), take("q", "s"), take("r", "s"); p != 10 || q != 5 || r != 0 {
		t.Error(p, q, r)
	}
	if other := take("r", "s2"); other != 10 {
		t.Error("another subscription:", other)
	}
	if n := take("p", "large") + take("q", "large"); n != 20 {
		t.Error("an exception:", n)
	}
	c.pass(15 * time.Second)
	if q := take("q", "s"); q != 10 {
		t.Errorf("who was refused has lost tokens: %d", q)
	}
	v := throttle.Take(Writes, "p", "s")
	if fmt.Sprint(v.Remaining) != "[{FlexNodeWrites 9} {FlexNodeSubscriptionWrites 4}]" {
		t.Errorf("%v", v.Remaining)
	}
}

// A caller without an id has a bucket of his own, and not that of the whole subscription.
func TestCallerWithoutAnID(t *testing.T) {
	t.Parallel()
	throttle, _ := newThrottle(t, Requests{
		Principal:    Rates{Writes: Rate{10, 1}},
		Subscription: Rates{Writes: Rate{100, 1}},
		Exceptions:   map[string]Rates{"bench": {Writes: Rate{1000, 1}}, "s": {Writes: Rate{500, 1}}},
	})
	take := func(principal string) int {
		return let(func() Verdict { return throttle.Take(Writes, principal, "s") }, 1000)
	}
	if nobody, exception := take(""), take("bench"); nobody != 10 || exception != 490 {
		t.Errorf("without an id %d, with an exception %d", nobody, exception)
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
		throttle.Take(Reads, fmt.Sprint("p", n), "s")
		throttle.TakeNode(fmt.Sprint("n", n))
		if throttle.TakeNode("flood").After == 0 {
			flood++
		}
	}
	if n, m := throttle.buckets.Len(), throttle.nodes.Len(); n != remembered || m != remembered {
		t.Error(n, m)
	}
	if flood != 5 {
		t.Errorf("who floods was let in %d times", flood)
	}
}

func TestBucketsAtOnce(t *testing.T) {
	t.Parallel()
	throttle, _ := newThrottle(t, Requests{Principal: Rates{Reads: Rate{50, 1}}})
	var in atomic.Int64
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			in.Add(int64(let(func() Verdict { return throttle.Take(Reads, "p", "s") }, 100)))
		})
	}
	running.Wait()
	if in.Load() != 50 {
		t.Error(in.Load())
	}
}
