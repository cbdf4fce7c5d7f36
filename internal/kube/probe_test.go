package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const secret = "abcdef.0123456789abcdef"

// api is an API server that knows one token.
func api(t *testing.T, answer http.HandlerFunc) (server *httptest.Server, ca []byte) {
	t.Helper()
	server = httptest.NewTLSServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that a test breaks off
	t.Cleanup(server.Close)
	block := pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	return server, pem.EncodeToMemory(&block)
}

func version(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+secret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Write([]byte(`{"major": "1", "minor": "35", "gitVersion": "v1.35.4"}`))
}

// via is a proxy that answers CONNECT with a status.
func via(t *testing.T, status int) Options {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	}))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("user", "canary")
	return Options{Proxy: func(*http.Request) (*url.URL, error) { return u, nil }}
}

// at is the proxy at an address, spoken to without TLS.
func at(address string) Proxy {
	u, err := url.Parse(strings.Replace(address, "https:", "http:", 1))
	return func(*http.Request) (*url.URL, error) { return u, err }
}

func badProxy(*http.Request) (*url.URL, error) { return nil, errors.New("canary") }

// dialError is a network that fails.
func dialError(err error) Options {
	return Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}}
}

// probeTest is one way to an API server, and the layer that is broken there.
type probeTest struct {
	name   string
	target Target
	layer  Layer // "" for no fault
	says   string
}

func testProbe(t *testing.T, tests []probeTest) {
	t.Helper()
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
			said := f.Error()
			if strings.Contains(said, "canary") || strings.Contains(said, "0123456789abcdef") {
				t.Errorf("a secret is in %q", said)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	good, ca := api(t, version)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	testProbe(t, []probeTest{
		{"all is well", Target{Server: good.URL, CA: ca, Token: secret}, "", ""},
		{"no credential", Target{Server: good.URL, CA: ca}, "", ""},
		{"no URL", Target{Server: "https://%zz"}, LayerHTTP, "node.kubelet.serverURL"},
		{
			"a name that does not exist", Target{Server: "https://api.invalid:443", CA: ca},
			LayerDNS, "api.invalid",
		},
		{
			"nothing listens", Target{Server: "https://" + closed.Addr().String(), CA: ca},
			LayerTCP, "connection to",
		},
		{
			"a network that drops everything",
			Target{Server: good.URL, CA: ca, Options: dialError(unix.ETIMEDOUT)},
			LayerTCP, "does not answer within",
		},
		{
			"a network that refuses", Target{Server: good.URL, Options: dialError(unix.EHOSTUNREACH)},
			LayerTCP, "cannot connect to the API server",
		},
		{
			"no DNS server", Target{Server: good.URL, Options: dialError(&net.DNSError{IsTimeout: true})},
			LayerDNS, "no DNS server answers",
		},
	})
}

func TestProbeServer(t *testing.T) {
	good, ca := api(t, version)
	_, otherCA := api(t, version)
	portal, portalCA := api(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("<html>Please log in</html>"))
	})
	ill, illCA := api(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	silent, silentCA := api(t, func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})
	plain := httptest.NewServer(http.HandlerFunc(version))
	t.Cleanup(plain.Close)
	testProbe(t, []probeTest{
		{
			"another CA", Target{Server: good.URL, CA: otherCA[:len(otherCA)-40], Token: secret},
			LayerTLS, "not issued by the cluster's CA",
		},
		{
			"another name", Target{
				Server: strings.Replace(good.URL, "127.0.0.1", "localhost", 1), CA: ca, Token: secret,
			},
			LayerTLS, "a certificate for other names",
		},
		{
			"no TLS", Target{Server: strings.Replace(plain.URL, "http:", "https:", 1), CA: ca},
			LayerTLS, "does not speak TLS",
		},
		{
			"an unknown token", Target{Server: good.URL, CA: ca, Token: "zzzzzz.0123456789abcdef"},
			LayerAuth, "ask the cluster's operator for a new one",
		},
		{
			"an unknown token of Entra ID",
			Target{Server: good.URL, CA: ca, Token: "0123456789abcdef", Entra: true},
			LayerAuth, "--enable-aad",
		},
		{
			"a login page", Target{Server: portal.URL, CA: portalCA, Token: secret},
			LayerHTTP, "not a Kubernetes API server",
		},
		{
			"a server that is ill", Target{Server: ill.URL, CA: illCA, Token: secret},
			LayerHTTP, "503",
		},
		{
			"a server that hangs up", Target{Server: silent.URL, CA: silentCA},
			LayerHTTP, "does not answer",
		},
	})
}

func TestProbeProxy(t *testing.T) {
	good, ca := api(t, version)
	tests := []probeTest{
		{
			"a proxy that wants a password",
			Target{Server: good.URL, CA: ca, Token: secret, Options: via(t, 407)}, LayerProxy, "407",
		},
		{
			"a proxy that forbids",
			Target{Server: good.URL, CA: ca, Token: secret, Options: via(t, 403)},
			LayerProxy, "proxy.noProxy",
		},
		{
			"a proxy that is none", Target{Server: good.URL, Options: Options{Proxy: at(good.URL)}},
			LayerProxy, "does not answer as a proxy",
		},
		{
			"a proxy with a bad URL", Target{Server: good.URL, Options: Options{Proxy: badProxy}},
			LayerProxy, "correct proxy.https",
		},
	}
	testProbe(t, tests)
}
