// Package rp is the resource provider: flexNodeConfig as an ARM resource. A request goes through the steps of Front.serve to one handler, a
// file each; what the handlers decide with is pure (validate, resolve, render, decide), what they decide is one transaction on the
// store, and what that means for a cluster is done by Server.advance, by the handler or, if it could not, by the cluster's controller.
package rp

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// Server is one replica of the provider.
type Server struct {
	Store *store.Store
	Index *store.Index
	// Keys seal what is stored and sign URLs and page tokens.
	Keys seal.Ring
	// Bundles is where configurations are handed out.
	Bundles Bundles
	// Clusters reaches the target clusters.
	Clusters Clusters
	// Authorizer answers for callers that come directly.
	Authorizer Authorizer
	// Defaults is agent configuration that every node is given, under all else.
	Defaults map[string]any
	// TenantID is that of subscriptions that did not tell theirs.
	TenantID string
	// Now is the clock.
	Now   func() time.Time
	Log   *slog.Logger
	Audit *slog.Logger
	// Metrics are counted here.
	Metrics *Metrics
	// Tracer makes spans; nil makes none.
	Tracer trace.Tracer
	// Did is told each thing that has been done for good, by name; tests stop the provider there.
	Did func(what string)

	facts sync.Map // store.Facts by id; they never change
	seen  seen
}

// Authorizer tells whether a caller may do an action at a scope.
type Authorizer interface {
	Allowed(ctx context.Context, c Caller, action, scope string) (bool, error)
}

func (s *Server) did(what string) {
	if s.Did != nil {
		s.Did(what)
	}
}

// commit makes a change that is known by a name.
func (s *Server) commit(ctx context.Context, what string, txn *store.Txn) (int64, error) {
	revision, err := txn.Commit(ctx)
	if err == nil {
		s.did(what)
	}
	return revision, err
}

// factsOf returns what nodes are told of their cluster; nothing for a cluster that has not been reached.
func (s *Server) factsOf(ctx context.Context, id string) (store.Facts, error) {
	if id == "" {
		return store.Facts{}, nil
	}
	if f, ok := s.facts.Load(id); ok {
		return f.(store.Facts), nil
	}
	row, err := s.Store.Facts.Get(ctx, id)
	if err != nil {
		return store.Facts{}, err
	}
	if !row.Exists() {
		return store.Facts{}, fmt.Errorf("internal error: the facts %s of a cluster are missing", id)
	}
	s.facts.Store(id, row.Value)
	return row.Value, nil
}

// ownNode tells whether a request is of a node about itself.
func (s *Server) ownNode(r *request) bool {
	poll, ok := s.Index.Poll(r.nodeKey())
	if ok {
		return r.caller.agent(poll.Agent)
	}
	// One that was deleted may know that.
	stone, err := s.Store.Tombstones.Get(r.Context(), r.nodeKey())
	return err == nil && stone.Exists() && r.caller.agent(stone.Value.Agent)
}

// parent returns the cluster of a request.
func (s *Server) parent(ctx context.Context, r *request) (store.Row[store.Cluster], error) {
	row, err := s.Store.Clusters.Get(ctx, r.clusterKey())
	if err != nil {
		return row, err
	}
	if !row.Exists() {
		return row, noParent(r)
	}
	return row, nil
}

func noParent(r *request) error {
	return arm.Errorf(404, "ParentResourceNotFound", "Can not perform requested operation on nested resource. Parent resource '%s' not found.", r.names["cluster"])
}

// notFound is the answer for a node that is not there. If it has been deleted, the answer carries its tombstone: by that, and by nothing
// else, an agent knows that its machine shall be given back.
func (s *Server) notFound(ctx context.Context, r *request) error {
	e := arm.Errorf(404, "ResourceNotFound", "The Resource '%s/%s/%s' under resource group '%s' was not found.", api.ResourceType, r.names["cluster"], r.names["node"], r.names["group"])
	stone, err := s.Store.Tombstones.Get(ctx, r.nodeKey())
	if err != nil {
		return err
	}
	if stone.Exists() {
		e.AdditionalInfo = []arm.Info{{Type: TombstoneInfo, Info: tombstone{Deleted: stone.Value.Deleted, ConfigVersion: stone.Value.Version}}}
	}
	return e
}

// TombstoneInfo is the type of the additional info by which a 404 tells that the node has been deleted.
const TombstoneInfo = "FlexNodeConfigTombstone"

type tombstone struct {
	Deleted       time.Time `json:"deletedAt"`
	ConfigVersion string    `json:"configVersion"`
}

// touch returns what systemData is after a change by the caller.
func (s *Server) touch(old api.SystemData, c Caller) api.SystemData {
	now := s.Now().UTC().Truncate(time.Millisecond)
	next := old
	if next.CreatedAt.IsZero() {
		next.CreatedAt, next.CreatedBy, next.CreatedByType = now, c.Name, c.Type
	}
	next.LastModifiedAt, next.LastModifiedBy, next.LastModifiedByType = now, c.Name, c.Type
	return next
}

// nextVersion is a configVersion after another: the time, and always more than before.
func (s *Server) nextVersion(previous string) string {
	now := s.Now().Unix()
	if last, err := strconv.ParseInt(previous, 10, 64); err == nil && now <= last {
		now = last + 1
	}
	return strconv.FormatInt(now, 10)
}

// clientSecret opens the stored client secret of a node.
func (s *Server) clientSecret(ctx context.Context, key string) (store.Row[store.Sealed], string, error) {
	row, err := s.Store.Secrets.Get(ctx, key)
	if err != nil || !row.Exists() {
		return row, "", err
	}
	text, err := s.Keys.Open("secrets/"+key, row.Value.Box)
	return row, string(text), err
}
