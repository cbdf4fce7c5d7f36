// Package credential issues the credentials that machines join with: a URL that hands out the
// configuration once, and a bootstrap token in it. It holds the state machine of a credential, the
// delivery of configurations and the client secrets of nodes. Handlers plan with Issue and Revoke;
// Step, which the reconciler of a cluster calls, does all work in the cluster.
package credential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Service issues credentials, follows them to their end, and keeps the secrets of nodes.
type Service struct {
	Store *store.Store
	// Keys seals tokens, configurations and client secrets.
	Keys     seal.Ring
	Delivery Delivery
	Now      func() time.Time
	// Lead returns how far this clock is ahead of another process's (store.Presence); it may be nil.
	Lead  func() time.Duration
	Audit *slog.Logger
	Log   *slog.Logger
}

const (
	// Lifetime is the time for which a credential can be used (document 004).
	Lifetime = 24 * time.Hour
	// Grace is the time for which a token is kept after its certificate is issued: kubelet still
	// watches its request with it.
	Grace = 30 * time.Second
	// Joining limits the time of a machine from its request to its certificate.
	Joining = 10 * time.Minute
)

// now returns the time with the precision of URLs and Secrets.
func (s *Service) now() time.Time { return s.Now().UTC().Truncate(time.Second) }

// subject is a credential with its node, read together.
type subject struct {
	key    string
	row    store.Row[store.Credential]
	node   store.Row[flexnode.Node]
	wanted bool // its node still refers to it
}

// in reads a credential and its node within a view.
func (s *Service) in(v *store.View, key string) subject {
	x := subject{key: key, row: s.Store.Credentials.Row(v, key)}
	if !x.row.Exists() {
		return x
	}
	x.node = s.Store.Nodes.Row(v, x.row.Value.Node)
	n, uid := x.node.Value, x.row.Value.UID
	x.wanted = x.node.Exists() && n.Credential == key && n.State != api.Deleting &&
		(uid == "" || uid == n.UID)
	return x
}

// get reads a credential and its node outside a view.
func (s *Service) get(ctx context.Context, key string) (x subject, err error) {
	_, err = s.Store.Update(ctx, "", []string{s.Store.Credentials.Key(key)},
		func(v *store.View) error {
			x = s.in(v, key)
			return nil
		})
	return x, err
}

// credential reads a credential within a view; a missing one has no state. key may be "".
func (s *Service) credential(v *store.View, key string) (c store.Credential) {
	if key != "" {
		c = s.Store.Credentials.Row(v, key).Value
	}
	return c
}

// errMoved is returned if a credential has changed since work for it began.
var errMoved = errors.New("the credential has changed meanwhile")

// The states of a credential and their transitions, from the write of its row to its deletion:
//
//	Pending --Secret and bundle are there--> Live --first request--> Consumed --issued + Grace--+
//	   |                                      |                         |                       |
//	   +--- replaced, deleted, expired -------+--- deleted, too late ---+--> Revoking <---------+
//	                                                                            |
//	                                                            Secret and bundle are gone: no row

// Due returns the state that a credential should be in at a time, and the time at which time alone
// changes that; zero for never. wanted reports whether its node still refers to it.
func Due(c store.Credential, wanted bool, now time.Time) (state string, next time.Time) {
	switch c.State {
	case store.Pending, store.Live:
		if !wanted || !now.Before(c.Expires) {
			return store.Revoking, time.Time{}
		}
		return c.State, c.Expires
	case store.Consumed: // its node may refer to another by now; the machine that joins finishes
		next = earliest(c.Expires, c.Since.Add(Joining))
		if c.Issued != nil {
			next = earliest(next, c.Issued.Add(Grace))
		}
		if !now.Before(next) {
			return store.Revoking, time.Time{}
		}
		return c.State, next
	}
	return c.State, time.Time{}
}

func earliest(of ...time.Time) time.Time { return slices.MinFunc(of, time.Time.Compare) }

// Application holds the parts of a request for a node's certificate, by a holder of a bootstrap
// token, that a decision needs.
type Application struct {
	TokenID string
	Node    string // the Node it is for; "" if it is not for the client certificate of one
	KeyHash string // of its public key
	Flaw    string // the reason that it cannot be approved, for any caller
	Name    string // of the request
}

// Decide returns the reason to deny an application with the token of a credential; "" approves it.
// The row is absent if no credential has that token.
func Decide(a Application, row store.Row[store.Credential]) (why string) {
	c, node := row.Value, flexnode.LastOf(row.Value.Node)
	switch {
	case !row.Exists():
		return "its bootstrap token is not known to the resource provider"
	case c.State == store.Pending:
		return "its bootstrap token has not been handed out yet"
	case c.State == store.Revoking:
		return "its bootstrap token has been revoked"
	case a.Flaw != "":
		return a.Flaw
	case a.Node != node:
		return fmt.Sprintf("its bootstrap token is for the node %s, not for %s", node, a.Node)
	case c.State == store.Consumed && c.KeyHash != a.KeyHash:
		return "its bootstrap token was used by another machine"
	}
	return ""
}

// Told returns the part of a credential that the status of its node shows.
func Told(c store.Credential) flexnode.JoinCredential {
	return flexnode.JoinCredential{
		Made: c.State != store.Pending, Ended: c.State == store.Revoking,
		Used:   c.State == store.Consumed || c.KeyHash != "" || c.Issued != nil,
		Issued: c.Issued != nil, Expires: c.Expires, Denied: c.Denied, Problem: c.Problem,
	}
}
