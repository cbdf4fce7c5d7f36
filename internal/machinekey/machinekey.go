// Package machinekey is how a machine proves to the resource provider which machine it is: a key of
// P-256 that never leaves it, and tokens (JWT, ES256) that are signed with the key. The agent
// signs, the provider verifies (package verifier) and decides what a key may do.
package machinekey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
)

// Scheme is the authentication scheme of a request's header Authorization.
const Scheme = "MachineKey"

// NonceHeader is the header of a 401 that has a nonce, by the name that net/http gives it.
const NonceHeader = "X-Ms-Flexnode-Nonce"

// SecondHeader is in the answer to a poll that reports another machine beside the caller.
const SecondHeader = "X-Ms-Flexnode-Second-Machine"

// Key is the key of a machine.
type Key struct {
	private *ecdsa.PrivateKey
	public  PublicKey
}

// PublicKey is a JSON Web Key of P-256 (RFC 7518, section 6.2.1).
type PublicKey struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
}

// New makes a key.
func New() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make the machine's key: %w", err)
	}
	return newKey(private)
}

func newKey(private *ecdsa.PrivateKey) (*Key, error) {
	point, err := private.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return nil, fmt.Errorf("cannot use the machine's key: %w", err)
	}
	return &Key{private, PublicKey{
		Kty: "EC", Crv: "P-256", X: encode(point[1 : 1+size]), Y: encode(point[1+size:]),
	}}, nil
}

// size is that of a coordinate, in bytes.
const size = 32

const block = "PRIVATE KEY"

// Parse reads a key from the PEM of its file.
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
	return newKey(private)
}

// PEM returns the key as its file has it. It is a secret.
func (k *Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the machine's key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der}), nil
}

// Thumbprint identifies the key.
func (k *Key) Thumbprint() string { return k.public.Thumbprint() }

// Thumbprint identifies the key (RFC 7638).
func (p PublicKey) Thumbprint() string {
	sum := sha256.Sum256([]byte(
		`{"crv":"P-256","kty":"EC","x":"` + p.X + `","y":"` + p.Y + `"}`))
	return encode(sum[:])
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// BootSize is the size of the id of a boot, in bytes.
const BootSize = 12

// NewBoot makes the id of a boot of the machine. Tokens have it: two machines with one key have
// booted apart from each other.
func NewBoot() string {
	id := make([]byte, BootSize)
	rand.Read(id) // it ends the program where it fails
	return encode(id)
}
