package follow

import (
	"context"
	"fmt"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// Identity makes the credential of the node's own identity in Azure.
type Identity func(c config.Config) (identity.Credential, error)

// NodeIdentity makes the credential that a configuration names.
func NodeIdentity(c config.Config) (identity.Credential, error) {
	return identity.Node(c.Azure, c.ProxyFunc())
}

// Tokens are those with which the provider is asked. They may be asked for by several goroutines.
type Tokens struct {
	Identity Identity

	// mu guards both, also while a token is asked for, which may take minutes.
	mu         sync.Mutex
	key        string // of the identity of credential
	credential identity.Credential
}

// Token returns a token of the node's identity in a configuration.
func (t *Tokens) Token(ctx context.Context, c config.Config) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, err := identity.Key(c.Azure)
	if err != nil {
		return "", err
	}
	if t.credential == nil || key != t.key {
		if t.credential, err = t.Identity(c); err != nil {
			return "", err
		}
		t.key = key
	}
	token, err := t.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{Scope(c)}})
	if err != nil {
		return "", identity.Explain(err, identity.TokenFor("the resource provider", c.Azure))
	}
	return token.Token, nil
}

// Prove makes sure that the provider answers the node of a configuration: a fresh token, past every
// cache, and one poll of the resource. Refused reports that trying again does not help; any other
// error leaves open whether it answers. alive is called as work goes on.
func Prove(
	ctx context.Context, r Resource, c config.Config, as Identity, alive func(),
) (refused bool, err error) {
	token, err := identity.Fresh(ctx, func() (identity.Credential, error) { return as(c) }, Scope(c),
		identity.TokenFor("the resource provider", c.Azure))
	if err != nil {
		return identity.Refused(err), err
	}
	alive()
	r.Trial = true
	r.Token = func(context.Context) (string, error) { return token.Value, nil }
	if _, err = r.Poll(ctx, "", 0); refusesNode(err) {
		return true, fmt.Errorf("cannot follow the resource with this configuration: %w; check "+
			"agent.monitoring.endpoint, the proxy and the identity in azure", err)
	}
	return false, err
}
