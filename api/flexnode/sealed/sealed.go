// Package sealed is how the provider gives a node its secrets (refreshCredentials): sealed to a key
// that the node has made for this one answer, so that no one between them, and no log, has them. It
// is HPKE (RFC 9180, mode base) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM, by
// the standard library, and both sides use it.
package sealed

import (
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// About names the flexNodeConfig of an answer, which opens for no other.
type About struct {
	ID  string // of the flexNodeConfig; its casing does not count
	UID string // of the flexNodeConfig
}

// info returns what both sides derive their keys from besides the keys that they have.
func (a About) info() []byte {
	return []byte("flexNodeConfig refreshCredentials\x00" + strings.ToLower(a.ID) + "\x00" +
		strings.ToLower(a.UID))
}

const keySize = 32 // the size of a public key and of what takes its place in an answer, in bytes

// ErrPublicKey is a public key that nothing can be sealed to.
var ErrPublicKey = errors.New("it is not the public key of a pair of X25519: 32 bytes, and no " +
	"point of low order")

// Seal seals a text to a public key. encapsulated and ciphertext are for Key.Open.
func Seal(public []byte, about About, text []byte) (encapsulated, ciphertext []byte, err error) {
	to, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(public)
	if err != nil {
		return nil, nil, ErrPublicKey
	}
	sealed, err := hpke.Seal(to, hpke.HKDFSHA256(), hpke.AES256GCM(), about.info(), text)
	if err != nil { // a point of low order
		return nil, nil, ErrPublicKey
	}
	return sealed[:keySize], sealed[keySize:], nil
}

// Check is ErrPublicKey for a key that nothing can be sealed to.
func Check(public []byte) error {
	_, _, err := Seal(public, About{}, nil)
	return err
}

// Key is the private key of a node, for one answer. It is kept in memory only.
type Key struct{ private hpke.PrivateKey }

// NewKey makes a key.
func NewKey() (*Key, error) {
	private, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return &Key{private}, nil
}

// Public returns the key that the provider seals to.
func (k *Key) Public() []byte { return k.private.PublicKey().Bytes() }

// Open opens an answer.
func (k *Key) Open(about About, encapsulated, ciphertext []byte) ([]byte, error) {
	if len(encapsulated) != keySize {
		return nil, fmt.Errorf("cannot open the answer: its encapsulated key has %d bytes, not %d",
			len(encapsulated), keySize)
	}
	text, err := hpke.Open(k.private, hpke.HKDFSHA256(), hpke.AES256GCM(), about.info(),
		slices.Concat(encapsulated, ciphertext))
	if err != nil {
		return nil, fmt.Errorf("cannot open the answer: it is not sealed to this key, or not for "+
			"%s with the uid %s: %w", about.ID, about.UID, err)
	}
	return text, nil
}
