package fair

import (
	"strings"
	"sync"
)

// Resource is a kind of things that a subscription has a quota of.
type Resource string

// The resources, by the names that usages have.
const (
	Nodes    Resource = "FlexNodes"
	Clusters Resource = "FlexNodeClusters"
	Tokens   Resource = "FlexNodeTokens"
	Bytes    Resource = "FlexNodeBytes"
)

// Resources are all of them.
func Resources() []Resource { return []Resource{Nodes, Clusters, Tokens, Bytes} }

// Quota holds the limits of a subscription; 0 is the default.
type Quota struct {
	Nodes int `json:"nodes,omitempty"`
	// Tokens are configuration URLs, and the bootstrap tokens behind them, that no machine has used.
	Tokens   int `json:"tokens,omitempty"`
	Clusters int `json:"clusters,omitempty"`
	// Bytes limits the memory that its nodes take in each replica. At the limit no node may be made
	// or become larger.
	Bytes int `json:"bytes,omitempty"`
}

// Of returns the quota of a resource.
func (q Quota) Of(r Resource) int {
	switch r {
	case Clusters:
		return q.Clusters
	case Tokens:
		return q.Tokens
	case Bytes:
		return q.Bytes
	}
	return q.Nodes
}

// Quotas holds the quotas of subscriptions. Without a default there is no limit.
type Quotas struct {
	Default Quota `json:"default"`
	// Subscriptions have others, by id.
	Subscriptions map[string]Quota `json:"subscriptions,omitempty"`
	// Contact is the address that callers get to ask for more.
	Contact string `json:"contact,omitempty"`
}

// Limit returns the quota of a subscription for a resource; 0 is without limit.
func (q Quotas) Limit(r Resource, subscription string) int {
	for id, own := range q.Subscriptions {
		if strings.EqualFold(id, subscription) && own.Of(r) > 0 {
			return own.Of(r)
		}
	}
	return q.Default.Of(r)
}

// Claims holds the accepted requests that may not be counted yet, because the count follows the
// store.
type Claims struct {
	mu   sync.Mutex
	held map[claim]map[string]int64 // by key, revision of the change, 0 while it is made
}

type claim struct {
	of           Resource
	subscription string
}

// Count returns how much there is, up to a revision.
type Count func() (used int, revision int64)

// Take claims one of a resource for a key, unless there are as many as a subscription may have. It
// tells how many there are without it. Who was let in tells the end with Done.
func (c *Claims) Take(
	r Resource, subscription, key string, limit int, count Count,
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

// Done ends a claim: revision is that of the change, 0 if it was not made.
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
