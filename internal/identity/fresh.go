package identity

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// issuerTimeout bounds one conversation with the issuer.
const issuerTimeout = 45 * time.Second

// Fresh gets one token from the issuer itself, past every cache that can be bypassed, and keeps it
// nowhere: it proves that a credential works now. It has a deadline of its own. credential makes
// the credential, anew for each call, since those of azidentity hold a cache.
//
// A managed identity's tokens are also kept for the whole process by azidentity's library, which is
// bypassed here, and by the metadata service of the machine (IMDS, or Arc's HIMDS), which cannot be
// bypassed: it hands out the same token for hours. Its secret never changes under a node, though:
// the platform renews it.
func Fresh(ctx context.Context, credential func() (Credential, error), scope string,
	need Need) (Token, error) {
	return ask(ctx, credential, scope, need, time.Now)
}

// ask has one conversation with the issuer.
func ask(ctx context.Context, credential func() (Credential, error), scope string, need Need,
	clock func() time.Time) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	issuer, err := credential()
	if err != nil {
		return Token{}, err
	}
	options := policy.TokenRequestOptions{Scopes: []string{scope}}
	if _, ok := issuer.(*azidentity.ManagedIdentityCredential); ok {
		// With claims the library does not read its cache. The metadata services get no claims.
		options.Claims = "{}"
	}
	got, err := issuer.GetToken(ctx, options)
	if err == nil && got.Token == "" {
		err = errors.New("the issuer's answer holds no token")
	}
	if err != nil {
		return Token{}, Explain(err, need)
	}
	now, expires := clock(), got.ExpiresOn
	if life, ok := ClaimsOf(got.Token).lifetime(); ok && now.Add(life).Before(expires) {
		expires = now.Add(life)
	}
	refresh := now.Add(expires.Sub(now) * 2 / 3)
	if soon := got.RefreshOn; !soon.IsZero() && soon.Before(refresh) {
		refresh = soon
	}
	return Token{Value: got.Token, Expires: expires, Refresh: refresh, Issued: now}, nil
}
