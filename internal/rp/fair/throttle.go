// Package fair keeps callers from taking what others need: so many requests in a time (Throttle),
// so many at once (Gate), so many connections (Connections), and so much stored (Quotas). All of it
// is of one replica; nothing is shared or stored.
package fair

import (
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
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

// Kinds of what the agent of a node asks.
const (
	OfNode    Kind = "node" // all of it
	Refreshes Kind = "refreshCredentials"
	Reports   Kind = "reportStatus"
	// Stored is all of the nodes of a subscription, or of an identity, that asks the store, and
	// Deliveries what is asked with one configuration URL.
	Stored     Kind = "stored"
	Deliveries Kind = "configUrl"
)

// kinds are those of what people ask.
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
	// Principal is for each principal in all subscriptions, Subscription for all that is asked in
	// one by who may, without its nodes.
	Principal    Rates `json:"principal"`
	Subscription Rates `json:"subscription"`
	// Node is for all that the agent of a node asks; Refreshes of its credentials and Reports of its
	// status, which cost the store, have buckets besides.
	Node      Rate `json:"node"`
	Refreshes Rate `json:"refreshes"`
	Reports   Rate `json:"reports"`
	// Exceptions are other rates by object id of a principal or by id of a subscription; those that
	// are left out are the ones above.
	Exceptions map[string]Rates `json:"exceptions,omitempty"`
}

// remembered is how many buckets there are, of principals and subscriptions and of nodes: those that
// were used last. One that is forgotten is full when it is used again.
const remembered = 20_000

// Throttle counts requests in token buckets.
type Throttle struct {
	limits  Requests
	now     func() time.Time
	made    time.Time
	buckets *lru.Cache[bucketKey, *bucket]
	nodes   *lru.Cache[bucketKey, *bucket]
}

type bucketKey struct {
	kind Kind
	// shared tells the bucket of a whole subscription from that of a principal, who may have no id.
	shared bool
	id     string
}

// NewThrottle makes a throttle whose buckets are full.
func NewThrottle(limits Requests, now func() time.Time) *Throttle {
	exceptions := map[string]Rates{}
	for id, rates := range limits.Exceptions {
		exceptions[strings.ToLower(id)] = rates
	}
	limits.Exceptions = exceptions
	return &Throttle{
		limits: limits, now: now, made: now(), buckets: newBuckets(), nodes: newBuckets(),
	}
}

func newBuckets() *lru.Cache[bucketKey, *bucket] {
	buckets, err := lru.New[bucketKey, *bucket](remembered)
	if err != nil { // only of a size below one
		panic("internal error: " + err.Error())
	}
	return buckets
}

// Verdict is what comes of a request.
type Verdict struct {
	// After is when to ask again; 0 lets the request in.
	After time.Duration
	// Of is the rate that was exceeded.
	Of Rate
	// Begun tells, at most once a minute, that somebody asks too much.
	Begun bool
	// Policy names the bucket that was asked, "" if there is none; Left is how many tokens it has.
	Policy string
	Left   int
}

// TakePrincipal counts a request of a principal, given in lower case, wherever he asks. What is
// refused is not counted.
func (t *Throttle) TakePrincipal(k Kind, principal string) Verdict {
	return t.takeOf(bucketKey{kind: k, id: principal}, "FlexNode")
}

// TakeSubscription counts a request that its caller may make in a subscription, given in lower
// case. What is refused is not counted.
func (t *Throttle) TakeSubscription(k Kind, subscription string) Verdict {
	return t.takeOf(bucketKey{kind: k, shared: true, id: subscription}, "FlexNodeSubscription")
}

// takeOf takes from a principal's or a subscription's bucket; policy is what it is called, without
// the kind.
func (t *Throttle) takeOf(key bucketKey, policy string) Verdict {
	if t == nil {
		return Verdict{}
	}
	rates := t.limits.Principal
	if key.shared {
		rates = t.limits.Subscription
	}
	limit := t.limits.of(key.kind, key.id, rates)
	v := t.take(t.buckets, key, limit)
	if limit.Burst > 0 {
		v.Policy = policy + string(key.kind)
	}
	return v
}

// TakeNode counts a request of a node about itself, or of somebody else in its place.
func (t *Throttle) TakeNode(k Kind, node string) Verdict {
	if t == nil {
		return Verdict{}
	}
	limit := t.limits.Node
	switch k {
	case Refreshes:
		limit = t.limits.Refreshes
	case Reports:
		limit = t.limits.Reports
	case Deliveries:
		limit = Rate{10, .1}
	}
	if t.limits.Node.Burst == 0 && k == Deliveries {
		return Verdict{}
	}
	return t.take(t.nodes, bucketKey{kind: k, id: node}, limit)
}

// TakeStored counts a request of a node that asks the store, for its subscription or identity, by
// how many nodes there are: each of them once a minute, and at first ten times as many.
func (t *Throttle) TakeStored(of string, nodes int) Verdict {
	if t == nil || t.limits.Node.Burst == 0 {
		return Verdict{}
	}
	rate := max(50, nodes/60)
	return t.take(t.nodes, bucketKey{kind: Stored, id: of}, Rate{10 * rate, float64(rate)})
}

func (r Requests) of(k Kind, id string, otherwise Rates) Rate {
	if other := r.Exceptions[id].of(k); other.Burst > 0 {
		return other
	}
	return otherwise.of(k)
}

// take takes a token from a bucket, or tells when there will be one.
func (t *Throttle) take(of *lru.Cache[bucketKey, *bucket], key bucketKey, r Rate) Verdict {
	if r.Burst == 0 {
		return Verdict{}
	}
	b, known := of.Get(key)
	if !known {
		b = &bucket{}
		if other, there, _ := of.PeekOrAdd(key, b); there { // made meanwhile
			b = other
		}
	}
	return b.take(r, t.now().Sub(t.made)) // by a clock that never goes back
}
