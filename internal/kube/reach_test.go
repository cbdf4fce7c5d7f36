package kube

import (
	"context"
	"net"
	"net/http"
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
