package credential

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Issue plans a new credential of a node within a change and revokes the present one, n.Credential,
// if no machine has used it. It sets n.Credential and makes n Updating, unless it is Creating; the
// caller writes n. It keeps a pending credential for the same configuration, so that a caller that
// retries while the cluster does not answer gets the same one. The machine that gets it registers
// its key with its enrolment secret, in place of the previous machine.
func (s *Service) Issue(v *store.View, nodeKey string, n *flexnode.Node) error {
	err := s.issue(v, nodeKey, n)
	n.Enrolment = flexnode.LastOf(n.Credential)
	return err
}

// issue is Issue for the present machine of the node: it enrols no other one.
func (s *Service) issue(v *store.View, nodeKey string, n *flexnode.Node) error {
	if n.State != api.Creating && (n.State != api.Failed || n.Assigned != 0) {
		n.State, n.Reason = api.Updating, ""
	}
	present := s.credential(v, n.Credential)
	if present.State == store.Pending && present.UID == n.UID && present.Config == n.Assigned &&
		(present.TokenID != "") == needsToken(*n) && s.now().Before(present.Expires.Add(-Lifetime/2)) {
		return nil // it is kept
	}
	v.Fail(s.Release(v, n))
	cluster, now := flexnode.ClusterOf(nodeKey), s.now()
	n.Ended, n.Credential = nil, cluster+"/"+uuid.NewString()
	c := store.Credential{ // nothing has been done for it yet
		Node: nodeKey, UID: n.UID, Cluster: cluster, Config: n.Assigned, State: store.Pending,
		Created: now, Since: now, Expires: now.Add(Lifetime), Epoch: s.Store.Epoch(v),
	}
	if needsToken(*n) {
		s.drawToken(v, n.Credential, &c)
	}
	return s.Store.Credentials.Put(v, n.Credential, c)
}

// needsToken reports whether a machine joins with a bootstrap token.
func needsToken(n flexnode.Node) bool { return !n.Desired.KubernetesAuth.UseAzureAuth }

// drawToken gives a credential a token with an id that is unique in the cluster. Its characters are
// those of a bootstrap token (Kubernetes, "Authenticating with Bootstrap Tokens").
func (s *Service) drawToken(v *store.View, key string, c *store.Credential) {
	id, secret := "", ""
	for id == "" || s.Store.Tokens.Row(v, c.Cluster+"/"+id).Exists() {
		text := strings.ToLower(rand.Text())
		id, secret = text[:6], text[6:22]
	}
	c.TokenID, c.Secret = id, new(s.Keys.Seal(tokenSeal+key, []byte(secret)))
	v.Fail(s.Store.Tokens.Put(v, c.Cluster+"/"+id, key))
}

// token returns the bootstrap token of a credential, id.secret; "" if it has none.
func (s *Service) token(key string, c store.Credential) (string, error) {
	if c.TokenID == "" || c.Secret == nil {
		return "", nil
	}
	secret, err := s.Keys.Open(tokenSeal+key, *c.Secret)
	if err != nil {
		return "", fmt.Errorf("cannot read the bootstrap token of %s: %w", c.Node, err)
	}
	return c.TokenID + "." + string(secret), nil
}

// Revoke revokes an unused credential within a change and, with alsoJoining, one that a machine is
// joining with. Its URL is dead with that change (a blob once Step has deleted it); its Secret in
// the cluster is deleted soon after. key may be "".
func (s *Service) Revoke(v *store.View, key string, alsoJoining bool) error {
	c := s.credential(v, key)
	if c.State == store.Pending || c.State == store.Live || c.State == store.Consumed && alsoJoining {
		return s.move(v, key, c, store.Revoking)
	}
	return nil
}

// maxJoining limits the credentials with which machines join as one node: beyond it the oldest is
// revoked.
const maxJoining = 8

// Release removes the credential from a node within a change: it is revoked or, if a machine joins
// with it, moved to n.Joining. The caller writes n.
func (s *Service) Release(v *store.View, n *flexnode.Node) error {
	key := n.Credential
	if key == "" {
		return nil
	}
	n.Credential = ""
	if s.Store.Credentials.Row(v, key).Value.State != store.Consumed {
		disenrol(n, key)
		return s.Revoke(v, key, false)
	}
	n.Joining = append(slices.Clone(n.Joining), key)
	if len(n.Joining) <= maxJoining {
		return nil
	}
	oldest := n.Joining[0]
	n.Joining = n.Joining[1:]
	return s.Revoke(v, oldest, true)
}

// move writes another state of a credential, in which it does not hand out a configuration any
// more.
func (s *Service) move(v *store.View, key string, c store.Credential, state string) error {
	c.State, c.Since = state, s.now()
	s.Store.Bundles.Delete(v, key)
	return s.Store.Credentials.Put(v, key, c)
}
