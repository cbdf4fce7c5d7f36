// Package verifier verifies the tokens that machines sign with their keys (package machinekey), and
// statements signed by their kubelets.
package verifier

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/internal/machinekey"
)

const (
	Leeway    = 30 * time.Second // between the clocks of machine and provider, without a nonce
	MaxLength = 4 << 10          // bounds a token, in bytes
)

// ErrTime reports a token that is valid except for its times.
var ErrTime = errors.New("the token is expired or not valid yet")

// Verifier verifies tokens.
type Verifier struct {
	Audiences []string // the URLs of the provider, without a trailing slash
	Now       func() time.Time
	// Nonce returns the expiry of a nonce, a Lifetime after it was issued; false if it is invalid.
	Nonce func(nonce string) (until time.Time, ok bool)
}

// Verified holds the verified claims of a token.
type Verified struct {
	machinekey.Claims
	Thumbprint string // the thumbprint of the signing key
	// Issued is the earliest time at which the token was made, and Ends its expiry, by the provider's
	// clock; Signed is the time of signing, by the machine's.
	Issued, Ends, Signed time.Time
}

// Verify verifies a token with its own key. The caller must check whose the thumbprint is.
func (v Verifier) Verify(text string) (Verified, error) {
	if len(text) > MaxLength {
		return Verified{}, errors.New("the token is too long")
	}
	var said machinekey.Payload
	var thumbprint string
	find := func(t *jwt.Token) (key any, err error) {
		key, thumbprint, err = keyOf(t.Header)
		return key, err
	}
	// The times are checked below, unless there is a nonce.
	_, err := jwt.ParseWithClaims(text, &said, find, jwt.WithValidMethods([]string{"ES256"}),
		jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	if err != nil {
		return Verified{}, err
	}
	claims, to := said.Claims, said.RegisteredClaims.Audience
	if len(to) != 1 || !slices.Contains(v.Audiences, to[0]) {
		return Verified{}, jwt.ErrTokenInvalidAudience
	}
	_, isBoot := decode(said.Boot, machinekey.BootSize)
	if said.Subject == "" || said.IssuedAt == nil || said.ExpiresAt == nil || !isBoot {
		return Verified{}, jwt.ErrTokenRequiredClaimMissing
	}
	claims.UID, claims.Audience = said.Subject, to[0]
	issued, ends, err := v.times(said)
	return Verified{claims, thumbprint, issued, ends, said.IssuedAt.Time}, err
}

func (v Verifier) times(said machinekey.Payload) (issued, ends time.Time, err error) {
	if said.Nonce != "" {
		if until, ok := v.Nonce(said.Nonce); ok {
			return until.Add(-machinekey.Lifetime), until, nil
		}
		return issued, ends, ErrTime
	}
	now, from, to := v.Now(), said.IssuedAt.Time, said.ExpiresAt.Time
	if to.Sub(from) > machinekey.Lifetime || now.Before(from.Add(-Leeway)) ||
		!now.Before(to.Add(Leeway)) {
		return issued, ends, ErrTime
	}
	return from, to.Add(Leeway), nil
}

func keyOf(header map[string]any) (key any, thumbprint string, err error) {
	text, _ := json.Marshal(header["jwk"]) // what was decoded can be encoded
	var public machinekey.PublicKey
	if err := json.Unmarshal(text, &public); err != nil {
		return nil, "", err
	}
	if header["typ"] != machinekey.TokenType || header["kid"] != public.Thumbprint() {
		return nil, "", errors.New("the token is of another kind, or names another key")
	}
	key, err = pointOf(public)
	return key, public.Thumbprint(), err
}

// pointOf returns the key if encoded exactly as in RFC 7518, so that it has only one thumbprint.
func pointOf(p machinekey.PublicKey) (*ecdsa.PublicKey, error) {
	x, okX := decode(p.X, 32)
	y, okY := decode(p.Y, 32)
	if p.Kty != "EC" || p.Crv != "P-256" || !okX || !okY {
		return nil, errors.New("it is not of P-256, or not written as it must be")
	}
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
}

// decode decodes a text of size bytes. ok is false for any other spelling of them.
func decode(text string, size int) (b []byte, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text) // it skips line breaks
	return b, err == nil && len(b) == size && !strings.ContainsAny(text, "\r\n")
}

// SignedByKubelet returns the certificate, which the caller must check, if its key has signed.
func SignedByKubelet(certificate, signature, statement []byte) (*x509.Certificate, error) {
	leaf, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("cannot read kubelet's certificate: %w", err)
	}
	how, ok := map[x509.PublicKeyAlgorithm]x509.SignatureAlgorithm{
		x509.ECDSA: x509.ECDSAWithSHA256, x509.RSA: x509.SHA256WithRSA,
	}[leaf.PublicKeyAlgorithm]
	if !ok {
		return nil, errors.New("kubelet's key is of another kind")
	}
	return leaf, leaf.CheckSignature(how, statement, signature)
}
