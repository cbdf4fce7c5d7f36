package follow

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/signing"
)

// UntrustedError reports an answer that is not signed for this machine, or goes back.
type UntrustedError struct{ Err error }

func (e *UntrustedError) Error() string {
	return "cannot trust the answer of the provider: " + e.Err.Error()
}
func (e *UntrustedError) Unwrap() error { return e.Err }

// Proof describes a verified signature.
type Proof struct {
	Signed time.Time
	Until  time.Time // the end of its key's certificate; a node keeps running after that
}

// Verify verifies a bundle's signature with the root certificate that this machine trusts, in DER.
// The error is an *UntrustedError, unless the bundle cannot be read.
func Verify(bundle, root []byte) (proof Proof, from config.Resource, err error) {
	content, from, err := config.Covered(bundle)
	var b struct{ Signature *agentapi.Signature }
	if err == nil {
		err = json.Unmarshal(bundle, &b)
	}
	if err != nil {
		return proof, from, err
	}
	proof, err = verify(root, b.Signature, signing.Statement{
		Kind: signing.Revision, UID: from.UID, Version: from.ConfigVersion, Epoch: from.Epoch,
		Content: content,
	})
	return proof, from, err
}

func verify(root []byte, by *agentapi.Signature, said signing.Statement) (proof Proof, err error) {
	switch {
	case by == nil:
		err = errors.New("it is not signed")
	case len(root) == 0:
		err = errors.New("this machine knows no root key of the installation; a new configuration URL " +
			"(regenerateToken) brings it")
	default:
		said.Time, proof.Signed = by.Time, by.Time
		proof.Until, err = signing.Verify(root, by.Certificate, by.Signature, said)
	}
	if err != nil {
		return proof, &UntrustedError{fmt.Errorf("the %s %s: %w", said.Kind, shorten(said.Version), err)}
	}
	return proof, nil
}

// Roots returns the CAs of the system and those in ca, in PEM.
func Roots(ca []byte) *x509.CertPool {
	roots, err := x509.SystemCertPool()
	if err != nil { // a machine may have none
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(ca)
	return roots
}

// Trust configures the trust in the provider's TLS certificate at the first contact.
type Trust struct {
	CA []byte // additional CAs, in PEM
	// Pin is "sha256:" and the hexadecimal SHA-256 of the public key (SubjectPublicKeyInfo, in DER) of
	// a certificate; "" for none. The server's chain must contain that certificate, as its own or as a
	// CA, which is trusted if the server presents it.
	Pin string

	mu    sync.Mutex
	found []byte // the pinned certificate if only the pin makes it trusted, in PEM
}

// PinError reports that no certificate in a server's chain has the pin.
type PinError struct{ Host string }

func (e *PinError) Error() string {
	return "cannot trust " + e.Host + ": no certificate of its chain has the public key of the " +
		"pin; the URL was not sent"
}

// Client returns a client for a configuration URL.
func (t *Trust) Client(proxy func(*http.Request) (*url.URL, error), u URL) (*http.Client, error) {
	roots := Roots(t.CA)
	if t.CA != nil && !x509.NewCertPool().AppendCertsFromPEM(t.CA) {
		return nil, errors.New("cannot use the CA file: it has no certificate in PEM")
	}
	if t.Pin == "" {
		return NewClient(proxy, roots), nil
	}
	text, prefixed := strings.CutPrefix(t.Pin, "sha256:")
	pin, err := hex.DecodeString(text)
	if !prefixed || err != nil || len(pin) != sha256.Size {
		return nil, errors.New("cannot use the pin: it must be sha256: and 64 hexadecimal digits")
	}
	at, between, err := route(proxy, u)
	if err != nil {
		return nil, err
	}
	return newClient(proxy, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection verifies, including the pin
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.ServerName != "" && s.ServerName == between {
				_, err := verified(s.PeerCertificates, between, roots)
				return err
			}
			// The name is spelled as in TLS; an address has none.
			return t.pinned(s.PeerCertificates, cmp.Or(s.ServerName, at), roots, pin)
		},
	}), nil
}

// route returns the server of a configuration URL, and the TLS proxy before it, or "".
func route(proxy func(*http.Request) (*url.URL, error), u URL) (at, between string, err error) {
	to, _ := url.Parse(u.Reveal()) // ParseURL has parsed it before
	at = to.Hostname()
	if proxy == nil {
		return at, "", nil
	}
	by, err := proxy(&http.Request{URL: to})
	if err != nil {
		return "", "", fmt.Errorf("cannot use the proxy: %w", withoutURL(err))
	}
	if by != nil && by.Scheme == "https" {
		between = strings.TrimSuffix(by.Hostname(), ".")
	}
	if strings.EqualFold(between, strings.TrimSuffix(at, ".")) {
		between = ""
	}
	return at, between, nil
}

// chain is a server's certificate with those of its issuers.
type chain = []*x509.Certificate

func (t *Trust) pinned(given chain, host string, roots *x509.CertPool, pin []byte) error {
	has := func(c *x509.Certificate) bool {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		return bytes.Equal(sum[:], pin)
	}
	chains, err := verified(given, host, roots)
	if slices.ContainsFunc(slices.Concat(chains...), has) {
		return nil
	}
	at := slices.IndexFunc(given, has)
	if at < 0 {
		return &PinError{host}
	}
	alone := x509.NewCertPool()
	alone.AddCert(given[at])
	if _, e := verified(given, host, alone); e != nil {
		if err == nil { // the server's own chain is a different one
			return &PinError{host}
		}
		return e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.found = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: given[at].Raw})
	return nil
}

func verified(given chain, host string, roots *x509.CertPool) ([]chain, error) {
	o := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range given[1:] {
		o.Intermediates.AddCert(c)
	}
	chains, err := given[0].Verify(o)
	if err != nil {
		return nil, fmt.Errorf("cannot trust %s: %w", host, err)
	}
	return chains, nil
}

// Kept returns the CAs that later requests to the provider need, in PEM; nil for none.
func (t *Trust) Kept() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Join([][]byte{t.CA, t.found}, nil)
}
