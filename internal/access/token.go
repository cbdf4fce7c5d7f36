package access

import (
	"context"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// Token shows the API server who kubelet is.
type Token = identity.Token

// Cached returns a configuration's token for kubelet from the cache, else from the issuer.
func Cached(ctx context.Context, m Machine, c config.Config) (Token, error) {
	cache, err := Cache(m, c)
	if err != nil {
		return Token{}, err
	}
	return cache.Token(ctx)
}

// Cache returns the cache of the tokens that kubelet shows.
func Cache(m Machine, c config.Config) (identity.Cache, error) {
	key, err := identity.Key(c.Azure)
	if err != nil {
		return identity.Cache{}, err
	}
	return identity.Cache{
		Dir: m.Path(config.RunDir), Key: key, Scope: identity.AKSServer + "/.default",
		Need: identity.TokenFor("kubelet", c.Azure),
		Warn: func(err error) { m.Warn("%v", err) }, Now: time.Now, Boot: identity.Uptime,
		Credential: credential(c),
	}, nil
}

// Fresh gets a token for kubelet from its issuer, past every cache.
func Fresh(ctx context.Context, c config.Config) (Token, error) {
	const scope = identity.AKSServer + "/.default"
	return identity.Fresh(ctx, credential(c), scope, identity.TokenFor("kubelet", c.Azure))
}

// credential makes kubelet's credential, another one for each call.
func credential(c config.Config) func() (identity.Credential, error) {
	return func() (identity.Credential, error) { return identity.Kubelet(c.Azure, c.ProxyFunc()) }
}
