package machinekey

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// Lifetime is the longest validity of a token.
	Lifetime = 5 * time.Minute
	// Leeway is the tolerance between the clocks of machine and provider without a nonce.
	Leeway = 30 * time.Second
	// MaxLength bounds a token, in bytes.
	MaxLength = 4 << 10
	// kind keeps a token from being taken for another kind of token (RFC 8725, section 3.11).
	kind = "flexnode-machine+jwt"
)

// Claims has the claims of a token.
type Claims struct {
	// UID is that of the flexNodeConfig, Audience the URL of the provider.
	UID, Audience string
	// Request binds the token to one request; the zero value binds it to none, which is enough for
	// polls.
	Request Request
	// Nonce is one that the provider has given; the token's times are not judged with it.
	Nonce string
	// Boot is an id that is made once per boot of the machine (NewBoot).
	Boot string
}

// Request identifies the one request that a token is bound to.
type Request struct {
	Method string `json:"htm,omitempty"`
	Path   string `json:"htp,omitempty"`
	// Digest is that of the body.
	Digest string `json:"bdy,omitempty"`
}

// RequestOf returns the request of a method, path and body.
func RequestOf(method, path string, body []byte) Request {
	return Request{Method: method, Path: path, Digest: Digest(body)}
}

// Digest is the SHA-256 of a body, as tokens have it.
func Digest(body []byte) string {
	sum := sha256.Sum256(body)
	return encode(sum[:])
}

type claims struct {
	jwt.RegisteredClaims
	Request
	Nonce string `json:"nonce,omitempty"`
	Boot  string `json:"boot,omitempty"`
}

// Sign returns a token that is valid from a time on.
func (k *Key) Sign(c Claims, now time.Time) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodES256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: c.UID, Audience: jwt.ClaimStrings{c.Audience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(Lifetime)),
		},
		Request: c.Request, Nonce: c.Nonce, Boot: c.Boot,
	})
	t.Header["typ"], t.Header["kid"], t.Header["jwk"] = kind, k.Thumbprint(), k.public
	text, err := t.SignedString(k.private)
	if err != nil {
		return "", fmt.Errorf("cannot sign with the machine's key: %w", err)
	}
	return text, nil
}

// ErrTime is a token that is right but for its times.
var ErrTime = errors.New("the token is expired or not valid yet")

// Verifier verifies tokens.
type Verifier struct {
	// Audiences are the URLs of the provider, without a slash at the end.
	Audiences []string
	Now       func() time.Time
	// Nonce returns until when a nonce holds, a Lifetime after it was made; false for one that does
	// not.
	Nonce func(nonce string) (until time.Time, ok bool)
}

// Verified has the claims that a token has proved.
type Verified struct {
	Claims
	// Thumbprint is that of the key that has signed it.
	Thumbprint string
	// Issued is when the token was made at the earliest, and Ends until when it holds, by the
	// provider's clock; Signed is when it was made by the machine's.
	Issued, Ends, Signed time.Time
}

// Verify verifies a token with the key that is in it. Whose key that is the caller decides by the
// thumbprint.
func (v Verifier) Verify(text string) (Verified, error) {
	if len(text) > MaxLength {
		return Verified{}, errors.New("the token is too long")
	}
	var said claims
	var thumbprint string
	find := func(t *jwt.Token) (key any, err error) {
		key, thumbprint, err = keyOf(t.Header)
		return key, err
	}
	// The times are judged below: with a nonce they are not.
	_, err := jwt.ParseWithClaims(text, &said, find, jwt.WithValidMethods([]string{"ES256"}),
		jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	if err != nil {
		return Verified{}, err
	}
	if len(said.Audience) != 1 || !slices.Contains(v.Audiences, said.Audience[0]) {
		return Verified{}, jwt.ErrTokenInvalidAudience
	}
	if said.Subject == "" || said.IssuedAt == nil || said.ExpiresAt == nil || !isBoot(said.Boot) {
		return Verified{}, jwt.ErrTokenRequiredClaimMissing
	}
	issued, ends, err := v.times(said)
	return Verified{
		Claims: Claims{
			UID: said.Subject, Audience: said.Audience[0], Request: said.Request, Nonce: said.Nonce,
			Boot: said.Boot,
		},
		Thumbprint: thumbprint, Issued: issued, Ends: ends, Signed: said.IssuedAt.Time,
	}, err
}

// times returns since when at the earliest there is a token, and until when it holds.
func (v Verifier) times(said claims) (issued, ends time.Time, err error) {
	if said.Nonce != "" {
		if until, ok := v.Nonce(said.Nonce); ok {
			return until.Add(-Lifetime), until, nil
		}
		return issued, ends, ErrTime
	}
	now, from, to := v.Now(), said.IssuedAt.Time, said.ExpiresAt.Time
	if to.Sub(from) > Lifetime || now.Before(from.Add(-Leeway)) || !now.Before(to.Add(Leeway)) {
		return issued, ends, ErrTime
	}
	return from, to.Add(Leeway), nil
}

// keyOf returns the key in the header of a token, which names it by its thumbprint.
func keyOf(header map[string]any) (key any, thumbprint string, err error) {
	text, err := json.Marshal(header["jwk"])
	if err != nil {
		return nil, "", err
	}
	var public publicKey
	if err := json.Unmarshal(text, &public); err != nil {
		return nil, "", err
	}
	if header["typ"] != kind || header["kid"] != public.thumbprint() {
		return nil, "", errors.New("the token is of another kind, or names another key")
	}
	key, err = public.key()
	return key, public.thumbprint(), err
}
