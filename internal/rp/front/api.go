// Package front is the resource provider's API: routing, authentication, authorization, paging,
// errors, metrics and audit. Each file has the handlers of one subject. They decide with package
// flexnode and write with store.Update. They change nothing in a cluster: its reconcilers do that,
// and a handler waits for them for a limited time.
package front

import (
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// API is the resource provider's API in one replica.
type API struct {
	Store *store.Store
	// Index is this replica's copy of nodes and clusters, from which polls and lists are answered.
	Index *store.Index
	// Seen has the times at which nodes were last heard of.
	Seen Liveness
	// Credentials makes and revokes the credentials that machines join with.
	Credentials *credential.Service
	// Authorizer authorizes callers that come directly.
	Authorizer Authorizer
	// Throttle and Gate limit the requests of callers.
	Throttle *fair.Throttle
	Gate     *fair.Gate
	// Quotas holds the quotas of subscriptions.
	Quotas fair.Quotas
	// Kubelets prove machines whose keys a restored store does not have; nil without clusters.
	Kubelets Kubelets
	// Kubeconfigs checks which kubeconfig each cluster may name.
	Kubeconfigs Kubeconfigs
	// Defaults has the operator's settings for every node, with this provider to poll.
	Defaults *flexnode.Layer
	// Installation names this provider among others.
	Installation string
	// PublicURL is the address of this API for callers, such as https://provider.example:8447.
	PublicURL string
	// Endpoints are the URLs at which agents may poll, without a slash at the end; the default first.
	Endpoints []string
	// Renderer is the program's version, with which revisions are marked.
	Renderer string
	// Waiters holds the polls that wait for a change; Pace sets when agents poll again.
	Waiters *Waiters
	Pace    *Pace
	// Patience limits a caller's wait for the work of a cluster's reconciler. Work that is not done by
	// then is reported with provisioningState and an asynchronous operation.
	Patience time.Duration
	Now      func() time.Time
	Log      *slog.Logger
	Audit    *slog.Logger
	Metrics  *Metrics
	// Tracer makes spans; nil makes none.
	Tracer trace.Tracer

	claims fair.Claims
}

// Liveness records when the agents of nodes were last heard of, by node key.
type Liveness interface {
	Note(nodeKey string, now time.Time)
	// Last returns zero for a node that was never heard of.
	Last(nodeKey string) time.Time
}

// Direct returns the API for callers with tokens, and for machines with their keys.
func (a *API) Direct(who Authenticator) http.Handler {
	return a.listener(newMachines(who, a.Endpoints, a.Credentials.Keys, a.Now), false)
}

// BehindARM returns the API for Resource Manager, which authenticates by client certificate.
func (a *API) BehindARM(who Authenticator) http.Handler { return a.listener(who, true) }

// listener is the API on one listener, which decides how callers authenticate.
type listener struct {
	api          *API
	authenticate Authenticator
	// trusted reports that Resource Manager is in front: it has authorized, and its headers are valid.
	trusted   bool
	routes    []route
	heardOf   *lru.Cache[string, time.Time] // by node key: the last time heard read it
	strangers limiters                      // of rejections
}

func (a *API) listener(who Authenticator, trusted bool) *listener {
	l := &listener{
		api: a, authenticate: who, trusted: trusted,
		heardOf: fair.NewCache[string, time.Time](10_000), strangers: newLimiters(),
	}
	for _, r := range a.routes() {
		if trusted && !r.registers || !trusted && !r.managerOnly {
			l.routes = append(l.routes, r)
		}
	}
	return l
}

// change updates rows for a request; what is "" if do only reads.
func (a *API) change(r *request, what string, do func(*store.View) error) error {
	_, err := a.Store.Update(r.Context(), what, nil, do)
	return err
}

// nodeIn reads the node of a request within a change; an error if it does not exist.
func (a *API) nodeIn(v *store.View, r *request) (flexnode.Node, error) {
	row := a.Store.Nodes.Row(v, r.nodeKey())
	if !row.Exists() || !named(r.uid, row.Value.UID) {
		return row.Value, a.notFound(r)
	}
	return row.Value, nil
}

// parent returns a cluster with the layers that its nodes are rendered with now.
func (a *API) parent(v *store.View, c flexnode.Cluster) flexnode.Parent {
	facts, err := a.Store.Layer(v.Context(), c.Facts)
	v.Fail(err)
	return flexnode.Parent{
		Cluster: c, FactsLayer: facts, Defaults: a.Defaults, Installation: a.Installation,
	}
}
