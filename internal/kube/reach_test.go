package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A silent peer, the server or a proxy before it, is waited for as long as the caller says, and a
// server again.
func TestReachIsBounded(t *testing.T) {
	const patience = 500 * time.Millisecond
	for name, through := range map[string]bool{"server": false, "proxy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts; no answer
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			target := Target{Server: "https://" + silent.Addr().String()}
			if through {
				target.Server = "https://server.example"
				target.Proxy = func(*http.Request) (*url.URL, error) {
					return &url.URL{Scheme: "http", Host: silent.Addr().String()}, nil
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			if _, err := Reach(ctx, target); err == nil {
				t.Error("it answers")
			}
			if took := time.Since(began); took > probeTimeout/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// The error names a proxy that accepts a connection and is silent.
func TestSilentProxy(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = Reach(ctx, Target{Server: "https://server.example", Options: Options{
		Proxy: func(*http.Request) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: silent.Addr().String()}, nil
		},
	}})
	if err == nil || strings.Contains(err.Error(), "closed") {
		t.Errorf("the error is %v", err)
	}
}

// A TLS fault of another server is not one of the API server.
func TestReachNamesTheServer(t *testing.T) {
	untrusted, ca := api(t, version)
	plain := httptest.NewServer(http.HandlerFunc(version))
	defer plain.Close()
	for name, tt := range map[string]struct {
		target Target
		want   string
	}{
		"untrusted": {Target{Server: untrusted.URL}, `unknown authority (its issuer is "O=Acme Co")`},
		"misnamed": {Target{Server: strings.Replace(untrusted.URL, "127.0.0.1", "localhost", 1),
			CA: ca}, "not localhost"},
		"no TLS": {Target{Server: strings.Replace(plain.URL, "http:", "https:", 1)}, "TLS handshake"},
	} {
		tt.target.Name = "container images"
		_, err := Reach(t.Context(), tt.target)
		if text := fmt.Sprint(err); !strings.Contains(text, "TLS: ") ||
			!strings.Contains(text, "container images") || !strings.Contains(text, tt.want) ||
			strings.Contains(text, "API server") || strings.Contains(text, "node.kubelet") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
