// Package rootkey generates the keys with which a provider signs (package signing), and the root
// key of its installation, which certifies them. It stores nothing.
package rootkey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/internal/signing"
)

// Lifetimes of certificates. A running node keeps following when one expires, which is reported.
const rootFor, keyFor = 30 * 365 * 24 * time.Hour, 2 * 365 * 24 * time.Hour

// NewKey generates a P-256 signing key and returns its 32 bytes.
func NewKey() []byte {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // it crashes the program on failure
	text, _ := key.Bytes()                                    // each key of P-256 has them
	return text
}

// Sign signs a statement: ECDSA with SHA-256, in ASN.1.
func Sign(key []byte, s signing.Statement) ([]byte, error) {
	private := parsed.Load()
	if private == nil || !bytes.Equal(private.key, key) {
		made, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), key)
		if err != nil {
			return nil, fmt.Errorf("cannot use the key that signs: %w", err)
		}
		private = &parsedKey{bytes.Clone(key), made}
		parsed.Store(private)
	}
	return ecdsa.SignASN1(rand.Reader, private.private, s.Digest())
}

// parsedKey is a key that was parsed, which takes half as long as a signature.
type parsedKey struct {
	key     []byte
	private *ecdsa.PrivateKey
}

var parsed atomic.Pointer[parsedKey] // the last one

// Root is a root key and its certificate.
type Root struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// NewRoot generates the root of an installation.
func NewRoot(now time.Time) (*Root, error) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // it crashes the program on failure
	root := &Root{key: key}
	der, err := root.certify(&key.PublicKey, "flexnode-rp root", now, now.Add(rootFor))
	if err == nil {
		root.certificate, err = x509.ParseCertificate(der)
	}
	return root, err
}

// Certificate returns the root's certificate, in DER.
func (r *Root) Certificate() []byte { return r.certificate.Raw }

// Certify returns a certificate for a signing key, in DER.
func (r *Root) Certify(key []byte, name string, now time.Time) ([]byte, error) {
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot certify the key that signs: %w", err)
	}
	return r.certify(&private.PublicKey, name, now, now.Add(keyFor))
}

// certify issues a certificate; if the root has none yet, it is the root's own.
func (r *Root) certify(
	public *ecdsa.PublicKey, name string, from, until time.Time,
) ([]byte, error) {
	to := &x509.Certificate{
		SerialNumber: big.NewInt(from.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: from, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	by := r.certificate
	if by == nil {
		to.IsCA, to.KeyUsage, by = true, x509.KeyUsageCertSign, to
	}
	der, err := x509.CreateCertificate(rand.Reader, to, by, public, r.key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate of %s: %w", name, err)
	}
	return der, nil
}

// PEM returns the root with its key, in the format of its file.
func (r *Root) PEM() []byte {
	key, _ := x509.MarshalPKCS8PrivateKey(r.key) // each key of P-256 can be encoded
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.certificate.Raw})...)
}

// ParseRoot parses a root with its key.
func ParseRoot(text []byte) (*Root, error) {
	first, rest := pem.Decode(text)
	second, _ := pem.Decode(rest)
	if first == nil || second == nil {
		return nil, errors.New("it has no private key and certificate in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(first.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := key.(*ecdsa.PrivateKey)
	certificate, err := x509.ParseCertificate(second.Bytes)
	if err != nil || !ok || !private.PublicKey.Equal(certificate.PublicKey) {
		return nil, errors.Join(errors.New("its key is not that of its certificate"), err)
	}
	return &Root{private, certificate}, nil
}
