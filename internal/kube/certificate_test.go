package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// keyPair is a self-signed client certificate and its key in one PEM file, as kubelet writes them.
func keyPair(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
}

// link makes name a link to a new file in its directory, as kubelet replaces its certificate.
func link(t *testing.T, name, file string, content []byte) {
	t.Helper()
	target := filepath.Join(filepath.Dir(name), file)
	if err := os.WriteFile(target, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, name+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// mutual is an API server that tells a client the name in its certificate.
func mutual(t *testing.T) (server *httptest.Server, ca []byte) {
	t.Helper()
	server = httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			review(r.TLS.PeerCertificates[0].Subject.CommonName)(w, r)
		}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	block := pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	return server, pem.EncodeToMemory(&block)
}

func TestFromCertificate(t *testing.T) {
	server, ca := mutual(t)
	current := filepath.Join(t.TempDir(), "kubelet-client-current.pem")
	c, err := FromCertificate(server.URL, ca, current, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	who := func() string {
		name, err := c.WhoAmI(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if _, err := c.WhoAmI(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "cannot use the client certificate") {
		t.Errorf("without a certificate: %v", err)
	}
	link(t, current, "1.pem", keyPair(t, "first"))
	if name := who(); name != "first" {
		t.Errorf("the API server sees %q", name)
	}
	link(t, current, "2.pem", keyPair(t, "second"))
	if name := who(); name != "first" {
		t.Errorf("on the open connection the API server sees %q", name)
	}
	c.Close()
	if name := who(); name != "second" {
		t.Errorf("after the replacement the API server sees %q", name)
	}
}

// A client that is closed leaves nothing behind: the agent makes one for each check.
func TestCloseLeavesNothing(t *testing.T) {
	server, ca := mutual(t)
	current := filepath.Join(t.TempDir(), "kubelet-client-current.pem")
	link(t, current, "1.pem", keyPair(t, "first"))
	before := runtime.NumGoroutine()
	for range 20 {
		c, err := FromCertificate(server.URL, ca, current, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WhoAmI(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	// Goroutines of closed connections end soon, on both sides.
	deadline := time.After(time.Minute)
	for runtime.NumGoroutine() > before+5 {
		select {
		case <-deadline:
			t.Fatalf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
		default:
			runtime.Gosched()
		}
	}
}
