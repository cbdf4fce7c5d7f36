package machinekey

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// Lifetime is the longest validity of a token.
	Lifetime = 5 * time.Minute
	// TokenType keeps a token from being taken for another kind of token (RFC 8725, section 3.11).
	TokenType = "flexnode-machine+jwt"
)

// Claims has the claims of a token.
type Claims struct {
	// UID is that of the flexNodeConfig, Audience the URL of the provider.
	UID, Audience string
	// Request binds the token to one request; zero binds it to none, enough for polls.
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

// Payload is the JSON of a token.
type Payload struct {
	jwt.RegisteredClaims
	Request
	Nonce string `json:"nonce,omitempty"`
	Boot  string `json:"boot,omitempty"`
}

// Sign returns a token that is valid from a time on.
func (k *Key) Sign(c Claims, now time.Time) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodES256, Payload{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: c.UID, Audience: jwt.ClaimStrings{c.Audience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(Lifetime)),
		},
		Request: c.Request, Nonce: c.Nonce, Boot: c.Boot,
	})
	t.Header["typ"], t.Header["kid"], t.Header["jwk"] = TokenType, k.Thumbprint(), k.public
	text, err := t.SignedString(k.private)
	if err != nil {
		return "", fmt.Errorf("cannot sign with the machine's key: %w", err)
	}
	return text, nil
}
