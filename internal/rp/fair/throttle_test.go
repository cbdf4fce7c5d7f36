package fair

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
)

func newThrottle(rates Rates) (*Throttle, *rptest.Clock) {
	c := rptest.NewClock()
	return NewThrottle(rates, map[string]float64{"BIG": 10}, c.Now), c
}

// let returns the number of requests, out of so many, that are let in.
func (t *Throttle) let(of Bucket, requests int) int {
	n := 0
	for range requests {
		if t.Take(of, 0).After == 0 {
			n++
		}
	}
	return n
}

func TestBuckets(t *testing.T) {
	throttle, c := newThrottle(Rates{
		Principal: {Reads: {10, 2}, Writes: {3, 1}, Lists: {1, .1}},
		Node:      {All: {4, 1}, Refreshes: {2, .1}, Reports: {3, 1}},
	})
	for _, tt := range []struct {
		name string
		of   Bucket
		want int
	}{
		{"a burst", Bucket{Principal, Reads, "p"}, 10},
		{"other kinds", Bucket{Principal, Writes, "p"}, 3},
		{"a kind without a limit", Bucket{Principal, Deletes, "p"}, 1000},
		{"another principal", Bucket{Principal, Reads, "q"}, 10},
		{"a principal without an id", Bucket{Principal, Reads, ""}, 10},
		{"a subscription without a limit", Bucket{Subscription, Reads, "p"}, 1000},
		{"an exception", Bucket{Principal, Reads, "big"}, 100},
		{"another kind of an exception", Bucket{Principal, Writes, "big"}, 30},
		{"a node", Bucket{Node, All, "n"}, 4},
		{"its refreshes", Bucket{Node, Refreshes, "n"}, 2},
		{"its reports", Bucket{Node, Reports, "n"}, 3},
		{"another node", Bucket{Node, All, "m"}, 4},
		{"nodes that share an exception", Bucket{Node, All, "big"}, 40},
	} {
		equal(t, tt.name, throttle.let(tt.of, 1000), tt.want)
	}
	reads, lists := Bucket{Principal, Reads, "p"}, Bucket{Principal, Lists, "p"}
	equal(t, "another one that is refused", throttle.Take(reads, 0),
		Verdict{After: 500 * time.Millisecond, Of: Rate{10, 2}, Limited: true})
	equal(t, "one that is let in", throttle.Take(lists, 0), Verdict{Limited: true})
	equal(t, "the first that is refused", throttle.Take(lists, 0),
		Verdict{After: 10 * time.Second, Of: Rate{1, .1}, Begun: true, Limited: true})
	equal(t, "limited without a limit", throttle.Take(Bucket{Principal, Deletes, "p"}, 0).Limited,
		false)
	c.Pass(3 * time.Second)
	equal(t, "three seconds later", throttle.let(reads, 1000), 6)
}

// The requests of one subscription's callers are limited together, besides those of each caller.
func TestBucketOfASubscription(t *testing.T) {
	throttle, c := newThrottle(Rates{Principal: {Writes: {1, 1}}, Subscription: {Writes: {15, 1}}})
	take := func(id string) int { return throttle.let(Bucket{Subscription, Writes, id}, 2000) }
	if s, again, other, large := take("s"), take("s"), take("s2"), take("big"); s != 15 ||
		again != 0 || other != 15 || large != 150 {
		t.Error(s, again, other, large)
	}
	c.Pass(5 * time.Second)
	equal(t, "what is left after a refusal", take("s"), 5)
	c.Pass(5 * time.Second)
	equal(t, "what is left", throttle.Take(Bucket{Subscription, Writes, "s"}, 0).Left, 4)
}

// The shared limit of a subscription's nodes grows with their number, that of new ones with its
// quota.
func TestBucketOfManyNodes(t *testing.T) {
	throttle, _ := newThrottle(DefaultRates())
	for nodes, want := range map[int]int{0: 499, 3000: 499, 6000: 999, 60_000: 9_999} {
		of := Bucket{Node, Stored, fmt.Sprint(nodes)}
		equal(t, fmt.Sprint("what is left of ", nodes, " nodes"), throttle.Take(of, nodes).Left, want)
	}
	of := Bucket{Subscription, Kind(Nodes), "s"}
	equal(t, "new nodes that are left", throttle.Take(of, DefaultLimits().Quotas.Default.Nodes).Left,
		39_999)
}

// However many callers come, a limited number of buckets is kept; a flooding caller's is among
// them.
func TestBucketsAreBounded(t *testing.T) {
	throttle, _ := newThrottle(Rates{Principal: {Reads: {5, 1}}, Node: {All: {5, 1}}})
	flood := 0
	for n := range remembered * 3 {
		throttle.Take(Bucket{Principal, Reads, fmt.Sprint("p", n)}, 0)
		throttle.Take(Bucket{Node, All, fmt.Sprint("n", n)}, 0)
		flood += throttle.let(Bucket{Node, All, "flood"}, 1)
	}
	for _, n := range []int{throttle.people.Len(), throttle.nodes.Len()} {
		equal(t, "those that are remembered", n, remembered)
	}
	equal(t, "how often who floods was let in", flood, 5)
}

// With any rate, small or large, a bucket gives its burst, and then one request at a time.
func TestRates(t *testing.T) {
	for _, r := range []Rate{{1, 1e-12}, {3, .3}, {3, 7}, {2, 100}} {
		b, now := &bucket{
			tokens: rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst),
			tells:  rate.NewLimiter(rate.Every(tellAgain), 1),
		}, time.Unix(1_800_000_000, 0)
		for n := range r.Burst {
			if v := b.take(r, now); v.After != 0 || v.Left != r.Burst-n-1 {
				t.Fatalf("%+v: %+v for the number %d", r, v, n)
			}
		}
		v := b.take(r, now)
		if v.After < time.Millisecond || v.After > longestWait || !v.Begun || v.Of != r {
			t.Errorf("%+v: then %+v", r, v)
		}
		v = b.take(r, now.Add(v.After+time.Millisecond))
		if is := v.After == 0; is != (r.PerSecond > 1e-6) {
			t.Errorf("%+v: at the time that was told %+v", r, v)
		}
	}
}
