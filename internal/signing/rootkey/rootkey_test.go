package rootkey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/signing"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A signature holds for one statement under one root, at any time.
func TestVerify(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	root, other := must(NewRoot(now)), must(NewRoot(now))
	key := NewKey()
	certificate := must(root.Certify(key, "key", now))
	said := signing.Statement{Kind: signing.Revision, UID: "u", Version: "7", Epoch: 2, Time: now,
		Content: []byte("{}")}
	signature := must(Sign(key, said))
	for name, tt := range map[string]struct {
		change                func(*signing.Statement)
		root, by              []byte
		rogue, holds, expired bool
	}{
		"as it was signed": {holds: true},
		"changed content":  {change: func(s *signing.Statement) { s.Content = []byte("{ }") }},
		"other uid":        {change: func(s *signing.Statement) { s.UID = "v" }},
		"other version":    {change: func(s *signing.Statement) { s.Version = "8" }},
		"other epoch":      {change: func(s *signing.Statement) { s.Epoch = 3 }},
		"other time":       {change: func(s *signing.Statement) { s.Time = now.Add(time.Second) }},
		"a tombstone":      {change: func(s *signing.Statement) { s.Kind = signing.Tombstone }},
		"fields shifted": {change: func(s *signing.Statement) {
			s.UID, s.Version = "u\n7", ""
		}},
		"other root":                 {root: other.Certificate()},
		"no root":                    {root: []byte{}},
		"certified by another root":  {by: must(other.Certify(key, "key", now))},
		"other key":                  {by: must(root.Certify(NewKey(), "key", now))},
		"certified by a certificate": {rogue: true},
		"expired certificate": {by: must(root.Certify(key, "key", now.Add(-2*keyFor))),
			holds: true, expired: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, anchor, by := said, root.Certificate(), certificate
			if tt.change != nil {
				tt.change(&s)
			}
			if tt.root != nil {
				anchor = tt.root
			}
			if tt.by != nil {
				by = tt.by
			}
			if tt.rogue { // the online key makes a certificate
				online := &Root{must(ecdsa.ParseRawPrivateKey(elliptic.P256(), key)),
					must(x509.ParseCertificate(certificate))}
				by = must(online.Certify(key, "key", now))
			}
			until, err := signing.Verify(anchor, by, signature, s)
			if (err == nil) != tt.holds {
				t.Fatalf("verified: %v", err)
			}
			if err == nil && until.Before(now) != tt.expired {
				t.Errorf("certified until %s", until)
			}
		})
	}
}

// Each of two keys that sign in turn makes its own signatures.
func TestKeysInTurn(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	root := must(NewRoot(now))
	keys := [][]byte{NewKey(), NewKey()}
	for i := range 6 {
		key := keys[i%2]
		said := signing.Statement{Kind: signing.Revision, UID: "u", Version: "7", Time: now}
		signature, certificate := must(Sign(key, said)), must(root.Certify(key, "key", now))
		if _, err := signing.Verify(root.Certificate(), certificate, signature, said); err != nil {
			t.Errorf("signature %d: %v", i, err)
		}
	}
	if _, err := Sign([]byte("no key"), signing.Statement{}); err == nil {
		t.Error("a key that is none signs")
	}
}

// A root is the same after it was kept.
func TestRootIsKept(t *testing.T) {
	root := must(NewRoot(time.Now()))
	text := root.PEM()
	kept := must(ParseRoot(text))
	if !bytes.Equal(kept.Certificate(), root.Certificate()) || !kept.key.Equal(root.key) {
		t.Error("it is another")
	}
	strange := must(NewRoot(time.Now())).PEM()
	at := bytes.Index(text, []byte("-----BEGIN CERTIFICATE"))
	from := bytes.Index(strange, []byte("-----BEGIN CERTIFICATE"))
	mixed := append(bytes.Clone(text[:at]), strange[from:]...)
	for _, wrong := range [][]byte{nil, text[:at], []byte("x"), mixed} {
		if _, err := ParseRoot(wrong); err == nil {
			t.Errorf("%.40q is a root", wrong)
		}
	}
}
