package credential

import (
	"context"
	"errors"
	"strconv"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Errors of Refresh.
var (
	// ErrNoNode is a node that has been deleted, or replaced by another of its name.
	ErrNoNode = errors.New("the node is not there any more")
	// ErrNotReady is a bootstrap token that is not in the cluster yet.
	ErrNotReady = errors.New("the bootstrap token is not in the cluster yet")
)

// reusable is for how long a token must be valid to be given again.
const reusable = time.Hour

// Refresh returns the secrets of the present desired revision of a node, for the node itself: its
// caller has made sure that it speaks with the node's present or former identity. A node that joins
// with a bootstrap token gets one that nobody has used: that of its live credential, or a new one,
// for which it waits until ctx ends; then there is none in the answer if there is another secret in
// it, else the error is ErrNotReady.
func (s *Service) Refresh(
	ctx context.Context, node store.Row[flexnode.Node],
) (api.Refreshed, error) {
	answer := api.Refreshed{ConfigVersion: strconv.FormatInt(node.Value.Revision, 10)}
	if node.Value.Desired.AzureAuth.ServicePrincipal != nil {
		secret, _, err := s.SecretFor(ctx, node.Key)
		if err != nil {
			return api.Refreshed{}, err
		}
		answer.ClientSecret = secret
	}
	if needsToken(node.Value) {
		err := s.refreshToken(ctx, node, &answer)
		if err != nil && (answer.ClientSecret == "" || !errors.Is(err, ErrNotReady)) {
			return api.Refreshed{}, err
		}
	}
	s.Audit.Info("credentials refreshed", "node", node.Key,
		"secret", answer.ClientSecret != "", "token", answer.BootstrapToken != "")
	return answer, nil
}

// refreshToken adds a bootstrap token to an answer.
func (s *Service) refreshToken(
	ctx context.Context, node store.Row[flexnode.Node], answer *api.Refreshed,
) error {
	key, err := s.fresh(ctx, node)
	if err != nil {
		return err
	}
	row, err := s.Await(ctx, key)
	if err != nil {
		return err
	}
	if row.Value.State != store.Live {
		return ErrNotReady
	}
	answer.BootstrapToken, err = s.token(key, row.Value)
	answer.Expires = &row.Value.Expires
	return err
}

// fresh returns a credential of a node that nobody has used, and plans one if there is none.
func (s *Service) fresh(ctx context.Context, node store.Row[flexnode.Node]) (string, error) {
	key := ""
	ahead := []string{s.Store.Nodes.Key(node.Key)}
	_, err := s.Store.Update(ctx, "credential planned", ahead, func(v *store.View) error {
		row, err := s.Store.Nodes.In(v, node.Key)
		if err != nil {
			return err
		}
		n := row.Value
		if !row.Exists() || n.UID != node.Value.UID || n.State == api.Deleting {
			return ErrNoNode
		}
		reuse, err := s.reusable(v, n)
		if key = n.Credential; err != nil || reuse {
			return err
		}
		if err := s.Issue(v, node.Key, &n); err != nil {
			return err
		}
		key = n.Credential
		return s.Store.Nodes.Put(v, node.Key, n)
	})
	return key, err
}

// reusable tells whether the credential of a node can be given to the node again.
func (s *Service) reusable(v *store.View, n flexnode.Node) (bool, error) {
	if n.Credential == "" {
		return false, nil
	}
	row, err := s.Store.Credentials.In(v, n.Credential)
	c := row.Value
	return row.Exists() && c.State == store.Live && c.UID == n.UID && c.TokenID != "" &&
		s.now().Before(c.Expires.Add(-reusable)), err
}
