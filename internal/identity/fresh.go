package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"golang.org/x/sys/unix"
)

// issuerTimeout bounds one conversation with the issuer.
const issuerTimeout = 45 * time.Second

// Fresh gets one token from the issuer itself, past every cache that can be bypassed, and keeps it
// nowhere: it proves that a credential works now. It has a deadline of its own. credential makes
// the credential, a new one for each call, since those of azidentity hold a cache.
//
// A managed identity's tokens are also kept for the whole process by azidentity's library, which is
// bypassed here, and by the metadata service of the machine (IMDS, or Arc's HIMDS), which cannot be
// bypassed: it hands out the same token for hours. Its secret never changes under a node, though.
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

// Uptime returns the id of the present boot, and how long ago it began, the time that the machine
// slept included. No process can set that clock.
func Uptime() (id string, since time.Duration) {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, ids are all the same
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(data)), time.Duration(t.Nano())
}

// Claims holds the claims of a JWT: whom it is for, and its own time in Unix seconds (RFC 7519,
// 4.1). They are zero for a token that is no JWT.
type Claims struct {
	ObjectID string  `json:"oid"`
	Issued   float64 `json:"iat"`
	Expires  float64 `json:"exp"`
}

// ClaimsOf reads a token's claims, without a look at its signature.
func ClaimsOf(token string) (c Claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Claims{}
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(data, &c) != nil {
		return Claims{}
	}
	return c
}

// lifetime returns how long the token is good in all; ok is false where it does not say.
func (c Claims) lifetime() (life time.Duration, ok bool) {
	life = time.Duration((c.Expires - c.Issued) * float64(time.Second))
	return life, c.Issued > 0 && life > 0
}

// endedAt reports whether the token says that it is not good at a time.
func (c Claims) endedAt(at time.Time) bool {
	return c.Expires > 0 && float64(at.Unix()) >= c.Expires
}
