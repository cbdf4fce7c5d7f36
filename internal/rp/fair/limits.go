package fair

import (
	"fmt"
	"strings"
	"sync"
)

// Resource is a kind of resource with a quota in each subscription.
type Resource string

// The resources, by their names in usages.
const (
	Nodes    Resource = "FlexNodes"
	Clusters Resource = "FlexNodeClusters"
	Tokens   Resource = "FlexNodeTokens"
	Bytes    Resource = "FlexNodeBytes"
)

// Resources returns all of them.
func Resources() []Resource { return []Resource{Nodes, Clusters, Tokens, Bytes} }

// Quota holds the limits of a subscription; 0 is the default.
type Quota struct {
	Nodes int `json:"nodes,omitempty"`
	// Tokens are configuration URLs, with their bootstrap tokens, that no machine has used.
	Tokens   int `json:"tokens,omitempty"`
	Clusters int `json:"clusters,omitempty"`
	// Bytes limits the memory that its nodes take in each replica. At the limit no node may be created
	// or grow.
	Bytes int `json:"bytes,omitempty"`
}

// Of returns the quota of a resource.
func (q Quota) Of(r Resource) int {
	of := map[Resource]int{Nodes: q.Nodes, Clusters: q.Clusters, Tokens: q.Tokens, Bytes: q.Bytes}
	return of[r]
}

// Quotas holds the quotas of subscriptions. Without a default there is no limit.
type Quotas struct {
	Default Quota `json:"default"`
	// Subscriptions overrides the default, by id.
	Subscriptions map[string]Quota `json:"subscriptions,omitempty"`
	// Contact is the address that callers get to ask for more.
	Contact string `json:"contact,omitempty"`
}

// Limit returns the quota of a subscription for a resource; 0 is no limit.
func (q Quotas) Limit(r Resource, subscription string) int {
	for id, own := range q.Subscriptions {
		if strings.EqualFold(id, subscription) && own.Of(r) > 0 {
			return own.Of(r)
		}
	}
	return q.Default.Of(r)
}

// Claims holds the accepted requests that the count may not include yet, since it follows the
// store.
type Claims struct {
	mu   sync.Mutex
	held map[claim]map[string]int64 // by key, revision of the change, 0 while it is made
}

type claim struct {
	of           Resource
	subscription string
}

// Take claims one of a resource for a key, unless the subscription has reached the limit. count
// returns the number of the resource, up to a revision. Take returns the number without this one. A
// successful caller must call Done.
func (c *Claims) Take(
	r Resource, subscription, key string, limit int, count func() (used int, revision int64),
) (used int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = map[claim]map[string]int64{}
	}
	of := claim{r, subscription}
	used, revision := count()
	for other, at := range c.held[of] {
		switch {
		case at != 0 && at <= revision:
			delete(c.held[of], other)
		case other != key:
			used++
		}
	}
	if limit > 0 && used >= limit {
		return used, false
	}
	if c.held[of] == nil {
		c.held[of] = map[string]int64{}
	}
	c.held[of][key] = 0
	return used, true
}

// Done ends a claim: revision is that of the change, 0 if it failed.
func (c *Claims) Done(r Resource, subscription, key string, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held[claim{r, subscription}]
	if revision == 0 {
		delete(held, key)
	} else if held != nil {
		held[key] = revision
	}
}

// Limits holds the limits that an operator of the provider may set, for each replica.
type Limits struct {
	// Exceptions holds the factors by which principals and subscriptions with an id may send more
	// requests than others, such as an automation that rolls out thousands of nodes, and their nodes.
	Exceptions map[string]float64 `json:"exceptions,omitempty"`
	Quotas     Quotas             `json:"quotas"`
	// Connections limits those of each listener.
	Connections Network `json:"connections"`
}

// Network limits the connections of a listener: Max all of them, which take memory and descriptors,
// PerAddress those of one address, which may be a load balancer's.
type Network struct {
	Max        int `json:"max"`
	PerAddress int `json:"perAddress"`
}

// DefaultLimits returns the limits for a machine of two cores.
func DefaultLimits() Limits {
	return Limits{
		Quotas:      Quotas{Default: Quota{Nodes: 20_000, Clusters: 100, Tokens: 5_000, Bytes: 64 << 20}},
		Connections: Network{Max: 16_384, PerAddress: 12_288},
	}
}

// Check returns all problems, each with its path below the limits.
func (l Limits) Check() []string {
	var problems []string
	need := func(ok bool, path, what string) {
		if !ok {
			problems = append(problems, path+": "+what)
		}
	}
	for id, times := range l.Exceptions {
		need(times > 0 && times <= maxTimes, fmt.Sprintf("exceptions[%s]", id),
			"is how many times as much may be asked, above 0")
	}
	q := l.Quotas.Default
	need(q.Nodes >= 1 && q.Clusters >= 1 && q.Tokens >= 1 && q.Bytes >= 1, "quotas.default",
		"needs nodes, clusters, tokens and bytes, at least 1")
	for id, q := range l.Quotas.Subscriptions {
		need(q.Nodes >= 0 && q.Clusters >= 0 && q.Tokens >= 0 && q.Bytes >= 0,
			fmt.Sprintf("quotas.subscriptions[%s]", id), "must not be negative")
	}
	n := l.Connections
	need(n.Max >= 1 && n.PerAddress >= 1, "connections", "needs max and perAddress, at least 1")
	return problems
}

// maxTimes is a factor that amounts to no limit.
const maxTimes = 1_000_000
