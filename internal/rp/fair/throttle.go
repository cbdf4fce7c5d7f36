// Package fair keeps callers from taking others' share: it limits the rate of requests (Throttle),
// concurrent requests (Gate), connections (Connections), and stored resources (Quotas). All limits
// are for one replica; nothing is shared or stored.
package fair

import (
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Kind is a kind of requests that are counted together.
type Kind string

// The kinds. Lists covers requests about many resources. Diagnoses counts requests for diagnoses of
// nodes: the answers are the largest rows.
const (
	Reads, Lists, Writes, Deletes Kind = "Reads", "Lists", "Writes", "Deletes"
	Diagnoses                     Kind = "Diagnoses"
)

// Kinds of requests of the nodes' agents.
const (
	All        Kind = "node"
	Refreshes  Kind = "refreshCredentials"
	Reports    Kind = "reportStatus"
	Deliveries Kind = "configUrl" // with one configuration URL
	// Stored counts those of these requests that use the store, for all nodes of a subscription or
	// an identity.
	Stored Kind = "stored"
)

// Owner is the owner of a bucket; the bucket's name in answers begins with it.
type Owner string

// The owners. A principal's buckets are for all subscriptions, a subscription's for all authorized
// requests in it, except those of its nodes.
const Principal, Subscription, Node Owner = "FlexNode", "FlexNodeSubscription", ""

// Bucket names a token bucket. ID is in lower case.
type Bucket struct {
	Of   Owner
	Kind Kind
	ID   string
}

// Rate is the rate of a token bucket: Burst requests at once, and then PerSecond.
type Rate struct {
	Burst     int
	PerSecond float64
}

func (r Rate) times(n float64) Rate {
	return Rate{max(1, int(n*float64(r.Burst))), n * r.PerSecond}
}

// Rates holds the rate of each owner's kinds; without a rate there is no limit.
type Rates map[Owner]map[Kind]Rate

// DefaultRates returns the rates of Resource Manager for a principal and a subscription, rates of
// new nodes, clusters and credentials, since no quota counts the rows that deleted ones leave, and
// rates for nodes that an agent in order never reaches.
func DefaultRates() Rates {
	return Rates{
		Principal: {Reads: {250, 25}, Lists: {100, 5}, Writes: {200, 10}, Deletes: {200, 10}},
		Subscription: {
			Reads: {3750, 375}, Lists: {500, 25}, Writes: {3000, 150}, Deletes: {3000, 150},
			Kind(Nodes): {6000, .02}, Kind(Clusters): {1000, .02},
			Kind(Tokens): {12_000, .1}, Diagnoses: {100, .05},
		},
		Node: {
			All: {200, 50}, Refreshes: {6, .1}, Reports: {20, 1}, Deliveries: {10, .1}, Stored: {500, 50},
		},
	}
}

// manyNodes is the number of nodes for which a rate is enough, such as Stored, which each uses once
// a minute. It grows with the number beyond that.
const manyNodes = 3000

// remembered limits the buckets, of principals and subscriptions and of nodes, to those used last.
// A bucket that was dropped is full when it is used again.
const remembered = 20_000

// Throttle counts requests in token buckets.
type Throttle struct {
	rates      Rates
	exceptions map[string]float64
	now        func() time.Time
	// Nodes have their own, so that people cannot push them out.
	people, nodes *lru.Cache[Bucket, *bucket]
}

// NewThrottle returns a throttle with full buckets. exceptions holds factors for the rates of
// principals and subscriptions, and for Stored of the nodes that share one, by id.
func NewThrottle(rates Rates, exceptions map[string]float64, now func() time.Time) *Throttle {
	t := &Throttle{
		rates: rates, exceptions: map[string]float64{}, now: now,
		people: NewCache[Bucket, *bucket](remembered), nodes: NewCache[Bucket, *bucket](remembered),
	}
	for id, times := range exceptions {
		t.exceptions[strings.ToLower(id)] = times
	}
	return t
}

// NewCache returns a cache of the most recently used values, at most size.
func NewCache[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil {
		panic("internal error: " + err.Error()) // of a size below 1
	}
	return cache
}

// Verdict is the decision on a request.
type Verdict struct {
	// After is the time to wait before a retry; 0 lets the request in.
	After time.Duration
	// Of is the rate that was exceeded.
	Of Rate
	// Begun reports, at most once a minute, that a caller sends too many requests.
	Begun bool
	// Limited reports that the bucket has a limit; Left is the number of tokens in it.
	Limited bool
	Left    int
}

// Take takes a token from a bucket that so many nodes share, or returns the time to wait for one. A
// refused request is not counted.
func (t *Throttle) Take(b Bucket, nodes int) Verdict {
	r, of := t.rates[b.Of][b.Kind], t.people
	if r.Burst == 0 {
		return Verdict{}
	}
	if b.Of == Node {
		of = t.nodes
	}
	if nodes > manyNodes {
		r = r.times(float64(nodes) / manyNodes)
	}
	if times := t.exceptions[b.ID]; times > 0 {
		r = r.times(times)
	}
	known, ok := of.Get(b)
	if !ok {
		fresh := &bucket{
			tokens: rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst),
			tells:  rate.NewLimiter(rate.Every(tellAgain), 1),
		}
		if known, ok, _ = of.PeekOrAdd(b, fresh); !ok {
			known = fresh
		}
	}
	return known.take(r, t.now())
}

type bucket struct {
	tokens *rate.Limiter
	tells  *rate.Limiter // of reports that there are too many requests
}

// tellAgain is the time between reports that a caller sends too many requests.
const tellAgain = time.Minute

// longestWait limits the time after which a refused caller may ask again.
const longestWait = 24 * time.Hour

// take takes a token at a time, or returns the time to wait for one. The rate may have changed
// since the bucket was made.
func (b *bucket) take(r Rate, now time.Time) Verdict {
	if b.tokens.Burst() != r.Burst {
		b.tokens.SetLimitAt(now, rate.Limit(r.PerSecond))
		b.tokens.SetBurstAt(now, r.Burst)
	}
	if b.tokens.AllowN(now, 1) {
		return Verdict{Limited: true, Left: int(b.tokens.TokensAt(now))}
	}
	seconds := min((1-b.tokens.TokensAt(now))/r.PerSecond, longestWait.Seconds())
	after := time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	return Verdict{
		Limited: true, Of: r, After: max(time.Millisecond, after), Begun: b.tells.AllowN(now, 1),
	}
}
