package kube

import (
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

const secret = "abcdef.0123456789abcdef"

// api is an API server that knows one token.
func api(t *testing.T, answer http.HandlerFunc) (server *httptest.Server, ca []byte) {
	t.Helper()
	server = httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func version(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+secret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Write([]byte(`{"major": "1", "minor": "35", "gitVersion": "v1.35.4"}`))
}

// via is a proxy that answers CONNECT with a status.
func via(t *testing.T, status int) Proxy {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("user", "canary")
	return func(*http.Request) (*url.URL, error) { return u, nil }
}

func TestProbe(t *testing.T) {
	good, ca := api(t, version)
	_, otherCA := api(t, version)
	portal, portalCA := api(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>Please log in</html>")) })
	ill, illCA := api(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	plain := httptest.NewServer(http.HandlerFunc(version))
	t.Cleanup(plain.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	tests := []struct {
		name   string
		target Target
		layer  Layer // "" for no fault
		says   string
	}{
		{"all is well", Target{Server: good.URL, CA: ca, Token: secret}, "", ""},
		{"a name that does not exist", Target{Server: "https://api.invalid:443", CA: ca}, LayerDNS, "api.invalid"},
		{"nobody listens", Target{Server: "https://" + closed.Addr().String(), CA: ca}, LayerTCP, "nothing accepts connections"},
		{"another CA", Target{Server: good.URL, CA: otherCA[:len(otherCA)-40], Token: secret}, LayerTLS, "not issued by the cluster's CA"},
		{"another name", Target{Server: strings.Replace(good.URL, "127.0.0.1", "localhost", 1), CA: ca, Token: secret}, LayerTLS, "a certificate for other names"},
		{"no TLS", Target{Server: strings.Replace(plain.URL, "http:", "https:", 1), CA: ca}, LayerTLS, "does not speak TLS"},
		{"an unknown token", Target{Server: good.URL, CA: ca, Token: "zzzzzz.0123456789abcdef"}, LayerAuth, "ask the cluster's operator for a new one"},
		{"a login page", Target{Server: portal.URL, CA: portalCA, Token: secret}, LayerHTTP, "not a Kubernetes API server"},
		{"a server that is ill", Target{Server: ill.URL, CA: illCA, Token: secret}, LayerHTTP, "503"},
		{"a proxy that wants a password", Target{Server: good.URL, CA: ca, Token: secret, Proxy: via(t, http.StatusProxyAuthRequired)}, LayerProxy, "407"},
		{"a proxy that forbids", Target{Server: good.URL, CA: ca, Token: secret, Proxy: via(t, http.StatusForbidden)}, LayerProxy, "proxy.noProxy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Probe(t.Context(), tt.target)
			f, ok := errors.AsType[*Fault](err)
			if tt.layer == "" {
				if err != nil {
					t.Errorf("unexpected fault: %v", err)
				}
				return
			}
			if !ok || f.Layer != tt.layer || !strings.Contains(f.Error(), tt.says) {
				t.Fatalf("the fault is %v; want layer %s and a word on %q", err, tt.layer, tt.says)
			}
			if strings.Contains(f.Error(), "canary") || strings.Contains(f.Error(), "0123456789abcdef") {
				t.Errorf("a secret is in %q", f.Error())
			}
		})
	}
}
