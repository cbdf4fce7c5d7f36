package kube

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// A redirect is not followed: another server would get the credential.
func TestRedirectIsNotFollowed(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
	}))
	defer other.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c, err := FromToken(server.URL, ca, "secret", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Node(t.Context(), "edge-1"); err == nil || asked.Load() != 0 {
		t.Errorf("the other server was asked %d times: %v", asked.Load(), err)
	}
}
