// Package fair keeps callers from taking what others need: so many requests in a time (Throttle),
// so many at once (Gate), so many connections (Connections), and so much stored (Quotas). All of it
// is of one replica; nothing is shared or stored.
package fair

import (
	"math"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Kind are requests that are counted together.
type Kind string

// The kinds. Lists are what goes over many resources.
const (
	Reads   Kind = "Reads"
	Lists   Kind = "Lists"
	Writes  Kind = "Writes"
	Deletes Kind = "Deletes"
)

// Kinds are all of them.
var kinds = []Kind{Reads, Lists, Writes, Deletes}

// Rate is a token bucket: so many requests at once, and then so many in a second. Without a burst
// there is no limit.
type Rate struct {
	Burst     int     `json:"burst"`
	PerSecond float64 `json:"perSecond"`
}

// Rates are a bucket for each kind of requests.
type Rates struct {
	Reads   Rate `json:"reads,omitzero"`
	Lists   Rate `json:"lists,omitzero"`
	Writes  Rate `json:"writes,omitzero"`
	Deletes Rate `json:"deletes,omitzero"`
}

func (r Rates) of(k Kind) Rate {
	switch k {
	case Lists:
		return r.Lists
	case Writes:
		return r.Writes
	case Deletes:
		return r.Deletes
	}
	return r.Reads
}

// Requests say how many requests are answered.
type Requests struct {
	// Principal is for each principal in each subscription, Subscription for all that is asked in
	// one, without its nodes.
	Principal    Rates `json:"principal"`
	Subscription Rates `json:"subscription"`
	// Node is for all that the agent of a node asks.
	Node Rate `json:"node"`
	// Exceptions are other rates by object id of a principal or by id of a subscription; those that
	// are left out are the ones above.
	Exceptions map[string]Rates `json:"exceptions,omitempty"`
}

// remembered is how many buckets there are at most, of principals and subscriptions and of nodes:
// those that were used last. One that is forgotten is full when it is used again.
const remembered = 20_000

// Throttle counts requests in token buckets.
type Throttle struct {
	limits  Requests
	now     func() time.Time
	buckets *lru.Cache[bucketKey, *bucket]
	nodes   *lru.Cache[bucketKey, *bucket]
}

type bucketKey struct {
	kind Kind
	// shared tells the bucket of a whole subscription from that of a principal, who may have no id.
	shared     bool
	who, where string
}

type bucket struct {
	*rate.Limiter
	rate Rate
	told rate.Sometimes
}

// NewThrottle makes a throttle whose buckets are full.
func NewThrottle(limits Requests, now func() time.Time) (*Throttle, error) {
	exceptions := map[string]Rates{}
	for id, rates := range limits.Exceptions {
		exceptions[strings.ToLower(id)] = rates
	}
	limits.Exceptions = exceptions
	buckets, err := lru.New[bucketKey, *bucket](remembered)
	if err != nil {
		return nil, err
	}
	nodes, err := lru.New[bucketKey, *bucket](remembered)
	return &Throttle{limits: limits, now: now, buckets: buckets, nodes: nodes}, err
}

// Remaining is how many tokens a bucket still has.
type Remaining struct {
	// Policy names the bucket.
	Policy string
	Count  int
}

// Verdict is what comes of a request.
type Verdict struct {
	// After is when to ask again; 0 lets the request in.
	After time.Duration
	// Of is the rate that was exceeded.
	Of Rate
	// Begun tells, at most once a minute, that somebody asks too much.
	Begun     bool
	Remaining []Remaining
}

// Take counts a request of a principal in a subscription, both in lower case. What is refused is
// not counted.
func (t *Throttle) Take(k Kind, principal, subscription string) Verdict {
	if t == nil {
		return Verdict{}
	}
	one := t.bucket(t.buckets, bucketKey{kind: k, who: principal, where: subscription},
		t.limits.of(k, principal, t.limits.Principal))
	all := t.bucket(t.buckets, bucketKey{kind: k, shared: true, where: subscription},
		t.limits.of(k, subscription, t.limits.Subscription))
	v := t.peek(all)
	if v.After == 0 {
		v = t.take(one)
	}
	if v.After == 0 {
		v = t.take(all)
	}
	now := t.now()
	for _, b := range []struct {
		name string
		*bucket
	}{{"FlexNode" + string(k), one}, {"FlexNodeSubscription" + string(k), all}} {
		if b.bucket != nil {
			v.Remaining = append(v.Remaining, Remaining{b.name, max(0, int(b.TokensAt(now)))})
		}
	}
	return v
}

// TakeNode counts a request of a node about itself.
func (t *Throttle) TakeNode(node string) Verdict {
	if t == nil {
		return Verdict{}
	}
	return t.take(t.bucket(t.nodes, bucketKey{who: node}, t.limits.Node))
}

func (r Requests) of(k Kind, id string, otherwise Rates) Rate {
	if other := r.Exceptions[id].of(k); other.Burst > 0 {
		return other
	}
	return otherwise.of(k)
}

func (t *Throttle) bucket(in *lru.Cache[bucketKey, *bucket], key bucketKey, r Rate) *bucket {
	if r.Burst == 0 {
		return nil
	}
	if b, ok := in.Get(key); ok {
		return b
	}
	b := &bucket{
		Limiter: rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst), rate: r,
		told: rate.Sometimes{Interval: time.Minute},
	}
	if before, known, _ := in.PeekOrAdd(key, b); known {
		return before
	}
	return b
}

// take takes a token, or tells when there will be one.
func (t *Throttle) take(b *bucket) Verdict {
	if b == nil || b.AllowN(t.now(), 1) {
		return Verdict{}
	}
	return t.refuse(b)
}

// peek is take, but takes nothing.
func (t *Throttle) peek(b *bucket) Verdict {
	if b == nil || b.TokensAt(t.now()) >= 1 {
		return Verdict{}
	}
	return t.refuse(b)
}

func (t *Throttle) refuse(b *bucket) Verdict {
	missing := max(0, 1-b.TokensAt(t.now()))
	v := Verdict{Of: b.rate, After: max(time.Millisecond,
		time.Duration(math.Ceil(missing/b.rate.PerSecond*float64(time.Second))))}
	b.told.Do(func() { v.Begun = true })
	return v
}
