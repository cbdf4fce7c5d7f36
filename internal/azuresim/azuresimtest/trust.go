// Package azuresimtest helps to test programs that connect to a simulated Azure over TLS, without
// replacing a part of them.
package azuresimtest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// Certificate returns a new self-signed certificate, as an application has one, that is valid for
// an hour, and its key.
func Certificate(t *testing.T) (*x509.Certificate, *rsa.PrivateKey) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sp"},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// Main runs a package's tests with the certificate of httptest's TLS servers as a trusted root,
// also in the programs that the tests start, and returns the exit code. A process reads its roots
// once, so call it before the first TLS connection.
func Main(m *testing.M) int {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close()
	file, err := os.CreateTemp("", "azuresim-*.pem")
	if err == nil {
		defer os.Remove(file.Name())
		err = pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		file.Close()
	}
	if err == nil {
		err = os.Setenv("SSL_CERT_FILE", file.Name())
	}
	if err != nil {
		fmt.Println("cannot make the tests' certificate trusted:", err)
		return 1
	}
	return m.Run()
}
