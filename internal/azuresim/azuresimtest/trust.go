// Package azuresimtest helps tests whose programs ask a simulated Azure over TLS, with nothing of theirs replaced.
package azuresimtest

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// Main runs a package's tests in a process that trusts the servers of httptest, and so do the programs that it starts; all those servers
// have the same certificate. It returns the exit code. A process reads its roots once: call it before the first TLS connection.
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
