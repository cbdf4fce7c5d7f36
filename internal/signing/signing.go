// Package signing defines and verifies signatures of the revisions and tombstones that a provider
// delivers to machines. Package rootkey has the signing keys, and the root key, which is kept
// offline and certifies them.
package signing

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Kinds of statements.
const Revision, Tombstone = "revision", "tombstone"

// Statement holds the fields that a signature covers: an installation has issued, or deleted, the
// resource with a uid, in a version of an epoch, at a time. Content is the issued bytes.
type Statement struct {
	Kind, UID, Version string
	Epoch              int64
	Time               time.Time // in seconds
	Content            []byte
}

// Digest returns the SHA-256 of the statement. Its text is unique for each statement.
func (s Statement) Digest() []byte {
	text := fmt.Sprintf("flexnode %s\n%q\n%q\n%d\n%d\n%x\n", s.Kind, s.UID, s.Version, s.Epoch,
		s.Time.Unix(), sha256.Sum256(s.Content))
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// Verify returns the end of the validity of a certificate. It is an error if the certificate's key
// has not signed the statement, or if the root has not issued it; both are in DER. It ignores
// times: a clock may be wrong, and a node keeps running.
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
	if !ok || !ecdsa.VerifyASN1(public, s.Digest(), signature) {
		return until, errors.New("the signature is not of this content, uid, version and epoch")
	}
	return key.NotAfter, nil
}
