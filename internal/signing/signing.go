// Package signing signs the revisions and tombstones that a provider hands to machines, and
// verifies them. A root key, which is kept offline, certifies the keys that sign. Nothing is stored
// here.
package signing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Kinds of statements.
const (
	Revision  = "revision"
	Tombstone = "tombstone"
)

// Statement holds the fields that a signature covers: an installation has given, or deleted, the
// resource with a uid, in a version of an epoch, at a time. Content is the bytes that it has given.
type Statement struct {
	Kind, UID, Version string
	Epoch              int64
	Time               time.Time // in seconds
	Content            []byte
}

// digest returns the SHA-256 of the statement. No two statements have the same text.
func (s Statement) digest() []byte {
	text := fmt.Sprintf("flexnode %s\n%q\n%q\n%d\n%d\n%x\n", s.Kind, s.UID, s.Version, s.Epoch,
		s.Time.Unix(), sha256.Sum256(s.Content))
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// Lifetimes of certificates. A running node does not stop following when one ends: it is reported.
const (
	rootFor = 30 * 365 * 24 * time.Hour
	keyFor  = 2 * 365 * 24 * time.Hour
)

// NewKey makes a key of P-256 that signs, as its 32 bytes.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key that signs: %w", err)
	}
	return key.Bytes()
}

// Sign signs a statement: ECDSA with SHA-256, in ASN.1.
func Sign(key []byte, s Statement) ([]byte, error) {
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the key that signs: %w", err)
	}
	return ecdsa.SignASN1(rand.Reader, private, s.digest())
}

// Root is a root key and its certificate.
type Root struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// NewRoot makes the root of an installation.
func NewRoot(now time.Time) (*Root, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a root key: %w", err)
	}
	root := &Root{key: key}
	der, err := root.certify(&key.PublicKey, "flexnode-rp root", now, now.Add(rootFor))
	if err == nil {
		root.certificate, err = x509.ParseCertificate(der)
	}
	return root, err
}

// Certificate returns the root's certificate, in DER.
func (r *Root) Certificate() []byte { return r.certificate.Raw }

// Certify returns a certificate of a key that signs, in DER.
func (r *Root) Certify(key []byte, name string, now time.Time) ([]byte, error) {
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot certify the key that signs: %w", err)
	}
	return r.certify(&private.PublicKey, name, now, now.Add(keyFor))
}

// certify makes a certificate; without one of the root it is the root's own.
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

// PEM returns the root with its key, as it is kept.
func (r *Root) PEM() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(r.key)
	if err != nil {
		return nil, fmt.Errorf("internal error: cannot encode the root key: %w", err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.certificate.Raw})...), nil
}

// ParseRoot reads a root with its key.
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

// Verify returns until when the key of a certificate is certified. It is an error if that key has
// not signed the statement, or if the root has not made the certificate; both are in DER. Times do
// not count: a clock may be wrong, and a node goes on.
func Verify(root, certificate, signature []byte, s Statement) (until time.Time, err error) {
	by, err := x509.ParseCertificate(root)
	if err != nil {
		return until, fmt.Errorf("cannot read the root certificate: %w", err)
	}
	key, err := x509.ParseCertificate(certificate)
	if err != nil {
		return until, fmt.Errorf("cannot read the certificate of the key that has signed: %w", err)
	}
	if err := key.CheckSignatureFrom(by); err != nil {
		return until, fmt.Errorf("the root has not certified the key that has signed: %w", err)
	}
	public, ok := key.PublicKey.(*ecdsa.PublicKey)
	if !ok || !ecdsa.VerifyASN1(public, s.digest(), signature) {
		return until, errors.New("the signature is not of this content, uid, version and epoch")
	}
	return key.NotAfter, nil
}
