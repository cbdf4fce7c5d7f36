// Package machinekey authenticates a machine to the resource provider: with a P-256 key that never
// leaves the machine, and tokens (JWT, ES256) signed by it. The agent signs; the provider verifies
// (package verifier) and decides what a key may do.
package machinekey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Scheme is the authentication scheme in a request's Authorization header.
const Scheme = "MachineKey"

// NonceHeader is the header of a 401 with a nonce, in net/http's canonical form.
const NonceHeader = "X-Ms-Flexnode-Nonce"

// SecondHeader is set in the answer to a poll if there is another machine beside the caller.
const SecondHeader = "X-Ms-Flexnode-Second-Machine"

// Key is the key of a machine.
type Key struct {
	PublicKey
	private *ecdsa.PrivateKey
}

// PublicKey is a JSON Web Key of P-256 (RFC 7518, section 6.2.1).
type PublicKey struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
}

// New generates a key.
func New() *Key {
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // it crashes the program on failure
	return newKey(private)
}

func newKey(private *ecdsa.PrivateKey) *Key {
	point, _ := private.PublicKey.Bytes() // 4, x, y; a key that was made or read is on the curve
	const size = 32                       // of a coordinate, in bytes
	x, y := encode(point[1:1+size]), encode(point[1+size:])
	return &Key{PublicKey{Kty: "EC", Crv: "P-256", X: x, Y: y}, private}
}

const block = "PRIVATE KEY"

// Parse parses a key file in PEM.
func Parse(text []byte) (*Key, error) {
	found, _ := pem.Decode(text)
	if found == nil || found.Type != block {
		return nil, errors.New("cannot read the machine's key: it is no PEM of a private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(found.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the machine's key: %w", err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("cannot read the machine's key: it is not of P-256")
	}
	return newKey(private), nil
}

// PEM returns the key in the format of its file. It is a secret.
func (k *Key) PEM() []byte {
	der, _ := x509.MarshalPKCS8PrivateKey(k.private) // each key of P-256 can be encoded
	return pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der})
}

// Thumbprint identifies the key (RFC 7638).
func (p PublicKey) Thumbprint() string {
	return Digest([]byte(`{"crv":"P-256","kty":"EC","x":"` + p.X + `","y":"` + p.Y + `"}`))
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// BootSize is the size of the id of a boot, in bytes.
const BootSize = 12

// NewBoot returns a new boot id, by which tokens distinguish two machines with one key.
func NewBoot() string {
	id := make([]byte, BootSize)
	rand.Read(id) // it crashes the program on failure
	return encode(id)
}

// Lifetime is the max validity of a token.
const Lifetime = 5 * time.Minute

// TokenType prevents confusion with other kinds of tokens (RFC 8725, section 3.11).
const TokenType = "flexnode-machine+jwt"

// Claims holds the claims of a token.
type Claims struct {
	// UID is the uid of the flexNodeConfig, Audience the URL of the provider.
	UID, Audience string `json:"-"`
	// Request binds the token to one request; zero does not bind it, which suffices for polls.
	Request
	// Nonce is one of the provider; with it, the token's times are not checked.
	Nonce string `json:"nonce,omitempty"`
	Boot  string `json:"boot,omitempty"` // an id that is unique for each boot (NewBoot)
}

// Request identifies the request that a token is bound to.
type Request struct {
	Method string `json:"htm,omitempty"`
	Path   string `json:"htp,omitempty"`
	Digest string `json:"bdy,omitempty"` // the digest of the body
}

// RequestOf returns the Request for a method, path and body.
func RequestOf(method, path string, body []byte) Request {
	return Request{Method: method, Path: path, Digest: Digest(body)}
}

// Digest returns the SHA-256 of a body, in the encoding of tokens.
func Digest(body []byte) string {
	sum := sha256.Sum256(body)
	return encode(sum[:])
}

// Payload is the JSON of a token.
type Payload struct {
	jwt.RegisteredClaims
	Claims
}

// Sign returns a token that is valid from now on.
func (k *Key) Sign(c Claims, now time.Time) string {
	t := jwt.NewWithClaims(jwt.SigningMethodES256, Payload{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: c.UID, Audience: jwt.ClaimStrings{c.Audience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(Lifetime)),
		},
		Claims: c,
	})
	t.Header["typ"], t.Header["kid"], t.Header["jwk"] = TokenType, k.Thumbprint(), k.PublicKey
	text, _ := t.SignedString(k.private) // texts can be encoded, and a key of P-256 can sign
	return text
}

// Statement returns the text that a kubelet signs: that a key belongs to the node with the uid.
func Statement(uid, thumbprint string) []byte {
	return []byte("aks-flex-node machine key\n" + uid + "\n" + thumbprint)
}

// SignAsKubelet signs with a kubelet's client certificate and key, in PEM. certificate is in DER.
func SignAsKubelet(pair, statement []byte) (certificate, signature []byte, err error) {
	kubelet, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use kubelet's certificate: %w", err)
	}
	key, ok := kubelet.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("cannot sign with kubelet's key")
	}
	sum := sha256.Sum256(statement)
	signature, err = key.Sign(rand.Reader, sum[:], crypto.SHA256)
	return kubelet.Certificate[0], signature, err
}
