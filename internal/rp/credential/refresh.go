package credential

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Errors of Refresh.
var (
	// ErrNoNode is returned if the node was deleted, or replaced by another of its name.
	ErrNoNode = errors.New("the node is not there any more")
	// ErrNotReady is returned if the configuration or bootstrap token waits for the cluster.
	ErrNotReady = errors.New("the configuration or its bootstrap token is not there yet")
	// ErrSecret is returned if the configuration has a secret, which the caller may not get.
	ErrSecret = errors.New("the configuration has a secret")
)

// reusable is the min remaining lifetime of a token that is given again.
const reusable = time.Hour

// readTimeout limits the time of the store's answer after the wait for the cluster.
const readTimeout = 5 * time.Second

// Refreshed is a node's configuration with its secrets.
type Refreshed struct {
	Bundle        []byte // api.Bundle
	ConfigVersion string
	// Expires is the expiry of the bootstrap token in it; nil without one.
	Expires *time.Time
}

// Refresh returns the configuration of a node with its secrets, for the node itself: the caller has
// checked that it has the node's present or a former identity. A node that joins with a bootstrap
// token gets an unused token: that of the live credential, or a new one, for which Refresh waits
// until ctx ends; then the error is ErrNotReady. A node that has joined gets an empty one: how it
// joined determines kubelet's identity. is reports whether the caller has an identity: one that
// speaks as an Arc machine does not get the secret that enrols the machine. If is is nil, the
// caller gets no secret, and the error is ErrSecret for a node that joins by one.
func (s *Service) Refresh(
	ctx context.Context, node store.Row[flexnode.Node], ask api.Refresh, is func(identity string) bool,
) (Refreshed, error) {
	if is == nil {
		ask.Joined, ask.RevokePrevious = true, false
	}
	key, revoked, err := s.fresh(ctx, node, ask)
	if err != nil {
		return Refreshed{}, err
	}
	for _, gone := range revoked {
		s.removeSoon(ctx, gone)
	}
	if key != "" {
		if _, err := s.Await(ctx, key); err != nil {
			return Refreshed{}, err
		}
	}
	// What needs no cluster is returned even if the wait for it has ended.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	answer, secret, err := s.refreshed(last, node, key, ask.Joined, is)
	if err != nil {
		return Refreshed{}, err
	}
	s.Audit.Info("credentials refreshed", "node", node.Key, "secret", secret,
		"token", answer.Expires != nil, "revoked", len(revoked), "revokePrevious", ask.RevokePrevious)
	return answer, nil
}

// fresh returns an unused credential of a node, and plans one if it has none; "" for a node that
// needs none. Before that, if asked, it revokes those that were handed out, and returns them.
func (s *Service) fresh(
	ctx context.Context, node store.Row[flexnode.Node], ask api.Refresh,
) (key string, revoked []string, err error) {
	if !ask.RevokePrevious && (ask.Joined || !needsToken(node.Value)) {
		return "", nil, nil
	}
	ahead := []string{s.Store.Nodes.Key(node.Key)}
	_, err = s.Store.Update(ctx, "credential planned", ahead, func(v *store.View) error {
		key, revoked = "", nil
		row := s.Store.Nodes.Row(v, node.Key)
		n := row.Value
		if !row.Exists() || n.UID != node.Value.UID || n.State == api.Deleting {
			return ErrNoNode
		}
		if ask.RevokePrevious {
			revoked = s.revokePrevious(v, &n)
		}
		if needsToken(n) && !ask.Joined {
			key = n.Credential
			if c := s.credential(v, key); !ask.RevokePrevious && c.State == store.Live &&
				c.UID == n.UID && c.TokenID != "" && s.now().Before(c.Expires.Add(-reusable)) {
				return nil // it can be given to the node again
			}
			v.Fail(s.issue(v, node.Key, &n))
			key = n.Credential
		}
		return s.Store.Nodes.Put(v, node.Key, n)
	})
	return key, revoked, err
}

// revokePrevious revokes a node's credentials that others may have, its own and those that machines
// still join with, and drops its former identities. A Pending credential was not handed out.
func (s *Service) revokePrevious(v *store.View, n *flexnode.Node) (revoked []string) {
	handedOut := n.Joining
	if n.Credential != "" {
		handedOut = append(slices.Clone(handedOut), n.Credential)
	}
	n.Former, n.Joining = "", nil
	for _, key := range handedOut {
		row := s.Store.Credentials.Row(v, key)
		if state := row.Value.State; state != store.Live && state != store.Consumed {
			continue
		}
		v.Fail(s.move(v, key, row.Value, store.Revoking))
		revoked = append(revoked, key)
		disenrol(n, key)
		if n.Credential == key {
			n.Credential = ""
		}
	}
	return revoked
}

// refreshed returns the configuration of a node with its present secrets, and whether a client
// secret is among them. key is the credential with its token; "" if it needs none.
func (s *Service) refreshed(
	ctx context.Context, node store.Row[flexnode.Node], key string, joined bool,
	is func(identity string) bool,
) (answer Refreshed, hasSecret bool, err error) {
	ahead := []string{s.Store.Nodes.Key(node.Key), s.Store.History.Key(node.Key)}
	_, err = s.Store.Update(ctx, "", ahead, func(v *store.View) error {
		answer = Refreshed{}
		row := s.Store.Nodes.Row(v, node.Key)
		if !row.Exists() || row.Value.UID != node.Value.UID {
			return ErrNoNode
		}
		if row.Value.Assigned == 0 {
			return ErrNotReady
		}
		r, secret, err := s.revision(v, node.Key, row.Value)
		if err != nil {
			return err
		}
		if is == nil && !r.JoinsByArc() {
			return ErrSecret
		}
		if is == nil || r.Onboards(row.Value.ID, is) {
			secret = ""
		}
		token := ""
		if c := s.credential(v, key); c.State == store.Live {
			answer.Expires = &c.Expires
			token, err = s.token(key, c)
			v.Fail(err)
		}
		if needsToken(row.Value) && token == "" && !joined {
			return ErrNotReady // without a token the agent would take its identity for kubelet's
		}
		hasSecret = secret != ""
		answer.ConfigVersion = strconv.FormatInt(r.Version, 10)
		answer.Bundle, err = s.bundle(v, row.Value, r, "",
			flexnode.Grants{ClientSecret: secret, Token: token})
		return err
	})
	return answer, hasSecret, err
}
