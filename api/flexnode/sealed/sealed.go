// Package sealed encrypts a node's secrets on the way from the provider (refreshCredentials) to a
// key that the node made for this one answer, so that no intermediary and no log has them. It is
// HPKE (RFC 9180, mode base) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM, from the
// standard library, and both sides use it.
package sealed

import (
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// About identifies the flexNodeConfig of an answer, which cannot be opened for another one.
type About struct {
	ID  string // of the flexNodeConfig; case-insensitive
	UID string // of the flexNodeConfig
}

// info returns the context from which both sides derive keys, besides their keys.
func (a About) info() []byte {
	return []byte("flexNodeConfig refreshCredentials\x00" + strings.ToLower(a.ID) + "\x00" +
		strings.ToLower(a.UID))
}

const keySize = 32 // the size of a public key and of an encapsulated key, in bytes

// ErrPublicKey reports a public key that cannot be used for sealing.
var ErrPublicKey = errors.New("it is not the public key of a pair of X25519: 32 bytes, and no " +
	"point of low order")

// Seal encrypts a text to a public key. encapsulated and ciphertext are for Key.Open.
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

// Key is a node's private key for one answer. It is kept in memory only.
type Key struct{ private hpke.PrivateKey }

// NewKey generates a key.
func NewKey() (*Key, error) {
	private, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return &Key{private}, nil
}

// Public returns the public key for the provider.
func (k *Key) Public() []byte { return k.private.PublicKey().Bytes() }

// Open decrypts an answer.
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
