package follow

import (
	"context"
	"fmt"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/transition"
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
	scope, err := Scope(c)
	if err != nil {
		return "", err
	}
	token, err := t.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return "", identity.Explain(err, identity.TokenFor("the resource provider", c.Azure))
	}
	return token.Token, nil
}

// Prove makes sure that the provider answers a node in the first of the ways: one poll with the
// registered key, or with a fresh token, past every cache. A refusal is a transition.Refused; any
// other error leaves open whether it answers.
func Prove(ctx context.Context, q Question) error {
	m := q.Ways[0]
	if !m.Asks || q.Resource.UID == "" {
		return nil
	}
	r := q.in(m)
	r.Trial = true
	if r.Signer == nil {
		if err := r.proveToken(ctx, q, m.Config); err != nil {
			return err
		}
	}
	q.Alive()
	defer r.Client.CloseIdleConnections()
	_, err := r.Poll(ctx, "", 0)
	if refusesNode(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf("cannot follow the "+
			"resource with this configuration: %w; check agent.monitoring.endpoint, the proxy and the "+
			"identity in azure", err)}
	}
	return err
}

// proveToken asks Azure for a fresh token, with which the resource is asked then.
func (r *Resource) proveToken(ctx context.Context, q Question, c config.Config) error {
	scope, err := Scope(c)
	if err != nil {
		return err
	}
	token, err := identity.Fresh(ctx, func() (identity.Credential, error) { return q.Identity(c) },
		scope, identity.TokenFor("the resource provider", c.Azure))
	if identity.Refused(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	r.Token = func(context.Context) (string, error) { return token.Value, nil }
	return err
}
