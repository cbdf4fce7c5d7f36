package credential

import (
	"context"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// ByToken returns the credential of a cluster that has a bootstrap token.
func (s *Service) ByToken(
	ctx context.Context, cluster, tokenID string,
) (store.Row[store.Credential], error) {
	owner, err := s.Store.Tokens.Get(ctx, cluster+"/"+tokenID)
	if err != nil || !owner.Exists() {
		return store.Row[store.Credential]{}, err
	}
	row, err := s.Store.Credentials.Get(ctx, owner.Value)
	if row.Value.TokenID != tokenID {
		return store.Row[store.Credential]{}, err
	}
	return row, err
}

// urlConsumed is the audit log's text for a credential without a token.
const urlConsumed = "configuration URL consumed"

// Consume records that a machine has requested a certificate with the token of a credential, or
// with the identity of its node: before the request is approved, or after another approver has
// approved it, for any purpose. That ends the URL; a blob's URL ends once the blob is deleted. A
// second request changes nothing; Decide checks that it is from the same machine.
func (s *Service) Consume(
	ctx context.Context, key string, a Application, fence store.Condition,
) error {
	what, node := "", "" // for the audit log
	err := worker{s, nil, fence}.update(ctx, "credential consumed", key,
		func(v *store.View, x subject) error {
			c := x.row.Value
			what, node = "", c.Node
			switch c.State {
			case store.Live:
				if what = "bootstrap token consumed"; c.TokenID == "" {
					what = urlConsumed
				}
				c.KeyHash, c.CSR = a.KeyHash, a.Name
				if n := x.node.Value; x.node.Exists() && n.UID == c.UID && !n.Used {
					n.Used = true
					v.Fail(s.Store.Nodes.Put(v, x.node.Key, n))
				}
				return s.move(v, key, c, store.Consumed)
			case store.Pending: // it was used before it was handed out
				return s.move(v, key, c, store.Revoking)
			}
			return nil
		})
	if err != nil || what == "" {
		return err
	}
	s.Audit.Info(what, "credential", key, "node", node, "csr", a.Name)
	s.removeSoon(ctx, key)
	return nil
}

// UseOf reports within a view whether the credential of a node is Live or will be, and if not,
// whether a machine has used one of its credentials. A node with any status has a machine.
func (s *Service) UseOf(v *store.View, nodeKey string, n flexnode.Node) (usable, used bool) {
	c := s.credential(v, n.Credential)
	if (c.State == store.Live || c.State == store.Pending) && s.now().Before(c.Expires) {
		return true, false
	}
	return false, n.Used || c.State == store.Consumed || s.Store.Status.Row(v, nodeKey).Exists()
}

// removeSoon removes a used configuration at once; if that fails, Step retries.
func (s *Service) removeSoon(ctx context.Context, key string) {
	if err := s.Delivery.Remove(ctx, key); err != nil {
		s.Log.Warn("a configuration that was used is not removed yet", "credential", key, "error", err)
	}
}

// Denied records the reason that a certificate request with the token of a credential was denied;
// key is "" if the token is unknown.
func (s *Service) Denied(
	ctx context.Context, key string, a Application, why string, fence store.Condition,
) error {
	s.Audit.Warn("certificate request denied", "credential", key, "csr", a.Name, "node", a.Node,
		"why", why)
	if key == "" {
		return nil
	}
	return worker{s, nil, fence}.edit(ctx, "denial noted", key, func(c *store.Credential) bool {
		changes := c.Denied != why
		c.Denied = why
		return changes
	})
}

// Issued records that the machine that consumed a credential has its certificate; after Grace its
// token is deleted.
func (s *Service) Issued(ctx context.Context, key, csr string, fence store.Condition) error {
	return worker{s, nil, fence}.edit(ctx, "certificate issued", key, func(c *store.Credential) bool {
		changes := c.State == store.Consumed && c.Issued == nil && c.CSR == csr
		c.Issued = new(s.now())
		return changes
	})
}

// Seen must be called when a node's present identity has polled or reported. The first time it
// consumes a credential without a token: its URL hands out the client secret, and a machine has it.
// It drops the node's former identities. n may be a moment old; usually nothing is read.
func (s *Service) Seen(ctx context.Context, nodeKey string, n flexnode.Node) error {
	if n.Former == "" && (n.Credential == "" || needsToken(n)) {
		return nil
	}
	consumed := ""
	ahead := []string{s.Store.Nodes.Key(nodeKey)}
	_, err := s.Store.Update(ctx, "node seen", ahead, func(v *store.View) error {
		consumed = ""
		row := s.Store.Nodes.Row(v, nodeKey)
		if !row.Exists() || row.Value.UID != n.UID ||
			row.Value.Identity != n.Identity || row.Value.State == api.Deleting {
			return nil
		}
		now := row.Value
		c := s.credential(v, now.Credential)
		// One that is known not to have been fetched is left for a machine that is still to come.
		if c.State == store.Live && c.TokenID == "" && !needsToken(now) && s.MayBeFetched(c) {
			consumed, c.Issued = now.Credential, new(s.now())
			v.Fail(s.move(v, consumed, c, store.Consumed))
		}
		now.Former, now.Used = "", now.Used || consumed != ""
		return s.Store.Nodes.Replace(v, nodeKey, row.Value, now)
	})
	if err != nil || consumed == "" {
		return err
	}
	s.Audit.Info(urlConsumed, "credential", consumed, "node", nodeKey)
	s.removeSoon(ctx, consumed)
	return nil
}

// MayBeFetched reports whether a machine may have fetched the configuration of a credential. Reads
// of a blob are not counted.
func (s *Service) MayBeFetched(c store.Credential) bool {
	_, counted := s.Delivery.(*Handout)
	return !counted || c.Delivered > 0
}
