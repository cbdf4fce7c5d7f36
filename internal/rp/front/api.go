// Package front is the resource provider's API: the way of a request from its route to an answer,
// who may do what, paging, errors, metrics and audit. Handlers are in files by what they are about;
// they decide with package flexnode and write with store.Update. They never reach for a cluster:
// what a cluster has to do is done by its reconcilers, and a handler waits for it for a while.
package front

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// API is the resource provider's API in one replica.
type API struct {
	Store *store.Store
	// Index is this replica's copy of nodes and clusters, from which polls and lists are answered.
	Index *store.Index
	// Seen is when nodes were last heard of.
	Seen Liveness
	// Credentials makes and revokes the credentials that machines join with.
	Credentials *credential.Service
	// Keys sign page tokens.
	Keys seal.Ring
	// Authorizer answers for callers that come directly.
	Authorizer Authorizer
	// Throttle and Gate bound what callers ask for; nil is no bound.
	Throttle *fair.Throttle
	Gate     *fair.Gate
	// Quotas holds the quotas of subscriptions.
	Quotas fair.Quotas
	// Kubelets prove machines whose keys a restored store does not know; nil without clusters.
	Kubelets Kubelets
	// Kubeconfigs tells which kubeconfig each cluster may name.
	Kubeconfigs Kubeconfigs
	// Defaults is agent configuration that every node is given, under all else.
	Defaults map[string]any
	// Installation names this provider among others.
	Installation string
	// PublicURL is the address of this API for callers, such as https://provider.example:8447.
	PublicURL string
	// Endpoints are the URLs at which agents may poll, without a slash at the end; the default
	// first.
	Endpoints []string
	// Audience is that of tokens for this API's own listener.
	Audience string
	// Renderer is the version of the program, which revisions are marked with.
	Renderer string
	// Waiters are the polls that wait for a change, Pace tells agents when to poll again.
	Waiters *Waiters
	Pace    *Pace
	// Patience limits a caller's wait for a cluster.
	Patience time.Duration
	Now      func() time.Time
	Log      *slog.Logger
	Audit    *slog.Logger
	Metrics  *Metrics
	// Tracer makes spans; nil makes none.
	Tracer trace.Tracer

	once         sync.Once
	defaults     *flexnode.Layer // once it was asked for
	defaultsKept atomic.Bool     // the store is known to have them
	claims       fair.Claims
	caches       sync.Once
	heardOf      *lru.Cache[string, time.Time] // by node key: when heard has told of it
	strangers    limiters                      // of refusals, by tenant and object id
}

// Liveness is when the agents of nodes were last heard of, by the keys of the nodes.
type Liveness interface {
	Note(nodeKey string, now time.Time)
	// Last is zero for one that was never heard of.
	Last(nodeKey string) time.Time
}

// CallerTimeout limits a caller's wait for the work of a cluster's reconciler. Work that is not
// done by then is reported with provisioningState and an asynchronous operation.
const CallerTimeout = 8 * time.Second

// Direct returns the API for callers with tokens, and for machines with their keys.
func (a *API) Direct(who Authenticator) http.Handler {
	return a.listener(newMachines(who, a.Endpoints, a.Keys, a.Now), false)
}

// BehindARM returns the API for Resource Manager, which is known by its client certificate.
func (a *API) BehindARM(who Authenticator) http.Handler { return a.listener(who, true) }

// listener is the API on one listener: how callers prove who they are is a matter of the listener.
type listener struct {
	api          *API
	authenticate Authenticator
	// trusted tells that Resource Manager is in front: it has authorized, and its headers hold.
	trusted bool
	routes  []route
}

func (a *API) listener(who Authenticator, trusted bool) *listener {
	a.caches.Do(func() {
		a.heardOf, a.strangers = newCache[string, time.Time](10_000), newLimiters()
	})
	l := &listener{api: a, authenticate: who, trusted: trusted}
	for _, r := range a.routes() {
		if trusted && !r.registers || !trusted && !r.managerOnly {
			l.routes = append(l.routes, r)
		}
	}
	return l
}

// change makes a change of rows for a request; what is "" for one that only reads.
func (a *API) change(r *request, what string, do func(*store.View) error) error {
	_, err := a.Store.Update(r.Context(), what, nil, do)
	return err
}

// storedNode reads the node of a request, which must be there.
func (a *API) storedNode(r *request) (store.Row[flexnode.Node], error) {
	row, err := a.Store.Nodes.Get(r.Context(), r.nodeKey())
	if err == nil && (!row.Exists() || !named(r.uid, row.Value.UID)) {
		err = a.notFound(r)
	}
	return row, err
}

// nodeIn is storedNode within a change.
func (a *API) nodeIn(v *store.View, r *request) (flexnode.Node, error) {
	row := a.Store.Nodes.Row(v, r.nodeKey())
	if !row.Exists() || !named(r.uid, row.Value.UID) {
		return row.Value, a.notFound(r)
	}
	return row.Value, nil
}

// parent is a cluster with what its nodes are rendered with now.
func (a *API) parent(v *store.View, c flexnode.Cluster) flexnode.Parent {
	facts, err := a.Store.Layer(v.Context(), c.Facts)
	v.Fail(err)
	return flexnode.Parent{
		Cluster: c, FactsLayer: facts, Defaults: a.DefaultsLayer(), Installation: a.Installation,
	}
}

// DefaultsLayer returns what the operator gives every node, and that it polls this provider.
func (a *API) DefaultsLayer() *flexnode.Layer {
	a.once.Do(func() {
		a.defaults = flexnode.DefaultsLayer(flexnode.Polling(a.Defaults, first(a.Endpoints), a.Audience))
	})
	return a.defaults
}

// keepDefaults has a change store the layer of defaults, unless it is known to be stored.
func (a *API) keepDefaults(v *store.View) error {
	layer := a.DefaultsLayer()
	if a.defaultsKept.Load() || a.Store.Layers.Row(v, layer.ID).Exists() {
		a.defaultsKept.Store(true)
		return nil
	}
	return a.Store.KeepLayer(v, layer)
}

// StoreDefaults stores the layer of defaults, so that no PUT has to.
func (a *API) StoreDefaults(ctx context.Context) error {
	_, err := a.Store.Update(ctx, "defaults written", nil, a.keepDefaults)
	return err
}
