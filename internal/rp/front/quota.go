package front

import (
	"cmp"
	"encoding/json"
	"net/http"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// quota holds the claims of a change on its subscription's quotas.
type quota struct {
	api   *API
	r     *request
	key   string // of the new resource
	taken []fair.Resource
}

// need claims one of a resource, unless too many were created lately; it may be called again.
func (q *quota) need(of fair.Resource) error {
	subscription := q.r.subscriptionKey()
	limit := q.api.Quotas.Limit(of, subscription)
	used, ok := q.api.claims.Take(of, subscription, q.key, limit, q.api.countOf(of, subscription))
	if ok {
		q.taken = append(q.taken, of)
		return q.api.lately(q.r, of)
	}
	contact := cmp.Or(q.api.Quotas.Contact, "the operator of the provider")
	return arm.Errorf(http.StatusConflict, "QuotaExceeded",
		"Operation could not be completed as it results in exceeding approved %s quota. "+
			"Additional details - Subscription: %s, Current Limit: %d, Current Usage: %d, "+
			"Additional Required: 1, (Minimum) New Limit Required: %d. Ask %s for a larger quota, "+
			"or delete what is not needed.",
		of, q.r.name("subscription"), limit, used, used+1, contact)
}

// lately refuses a request that leaves rows of a resource if its subscription has sent too many.
// Each node may need a token, whatever the quota of unused ones.
func (a *API) lately(r *request, of fair.Resource) error {
	id := r.subscriptionKey()
	size := a.Quotas.Limit(of, id)
	if of == fair.Tokens {
		size = max(size, a.Quotas.Limit(fair.Nodes, id))
	}
	return a.take(r, fair.Bucket{Of: fair.Subscription, Kind: fair.Kind(of), ID: id}, size)
}

// issue issues a node's credential within a change, unless too many are unused or were created
// lately.
func (q *quota) issue(v *store.View, n *flexnode.Node) error {
	was := n.Credential
	v.Fail(q.api.Credentials.Issue(v, q.key, n))
	switch was {
	case "":
		return q.need(fair.Tokens)
	case n.Credential:
		return nil
	}
	return q.api.lately(q.r, fair.Tokens)
}

// needBytes claims bytes for a node that is new, or whose settings have grown.
func (q *quota) needBytes(old store.Row[flexnode.Node], next flexnode.Node) error {
	if old.Exists() && old.Value.Revision == next.Revision && old.Value.Floor == next.Floor {
		return nil
	}
	was, _ := json.Marshal(old.Value.Desired)
	is, _ := json.Marshal(next.Desired) // what was decoded can be encoded
	if old.Exists() && len(is) <= len(was) {
		return nil
	}
	return q.need(fair.Bytes)
}

// change makes a change, and ends the claims with its revision; 0 if it was not made.
func (q *quota) change(what string, ahead []string, do func(*store.View) error) error {
	revision, err := q.api.Store.Update(q.r.Context(), what, ahead, do)
	for _, of := range q.taken {
		q.api.claims.Done(of, q.r.subscriptionKey(), q.key, revision)
	}
	return err
}

func (a *API) countOf(of fair.Resource, subscription string) func() (int, int64) {
	return func() (int, int64) {
		used, revision := a.Index.Used(subscription)
		return fair.Quota(used).Of(of), revision
	}
}

type usage struct {
	Unit string `json:"unit"`
	Name struct {
		Value          string `json:"value"`
		LocalizedValue string `json:"localizedValue"`
	} `json:"name"`
	CurrentValue int `json:"currentValue"`
	Limit        int `json:"limit"`
}

// listUsages answers with a subscription's use of its quotas, which are the same in all locations.
func (a *API) listUsages(r *request) (any, error) {
	words := map[fair.Resource]string{
		fair.Nodes: "Flex nodes", fair.Clusters: "Target clusters of flex nodes",
		fair.Tokens: "Configuration URLs that no machine has used",
		fair.Bytes:  "Bytes of the configurations of flex nodes",
	}
	subscription := r.subscriptionKey()
	answer := api.List[usage]{}
	for _, of := range fair.Resources() {
		one := usage{Unit: "Count", Limit: cmp.Or(a.Quotas.Limit(of, subscription), -1)}
		if of == fair.Bytes {
			one.Unit = "Bytes"
		}
		one.Name.Value, one.Name.LocalizedValue = string(of), words[of]
		one.CurrentValue, _ = a.countOf(of, subscription)()
		answer.Value = append(answer.Value, one)
	}
	return answer, nil
}
