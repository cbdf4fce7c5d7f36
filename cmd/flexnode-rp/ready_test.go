package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// It retries until both URLs succeed, and in the end reports the last error.
func TestReady(t *testing.T) {
	var asked atomic.Int32
	writable := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz" && asked.Add(1) == 1:
			http.Error(w, "draining", http.StatusServiceUnavailable)
		case r.URL.Path == "/readyz", r.URL.Path == "/readyz/write" && writable:
			fmt.Fprintln(w, "ok")
		case r.URL.Path == "/readyz/write":
			http.Error(w, "the store's disk has less than 192 MiB left", http.StatusServiceUnavailable)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	out, err := run(t, "ready", server.URL)
	if want := server.URL + "/readyz ok\n" + server.URL + "/readyz/write ok\n"; err != nil ||
		out != want || asked.Load() != 2 {
		t.Errorf("%v, %q, want %q; asked %d times", err, out, want, asked.Load())
	}
	writable = false
	for _, tt := range []struct{ at, want string }{
		{server.URL, "/readyz/write answered 503: the store's disk has less than 192 MiB left"},
		{server.URL + "/elsewhere", "/elsewhere/readyz answered 404"},
		{"http://127.0.0.1:1", "cannot check whether the provider is ready"},
		{"flexnode-rp:9447", "not an http or https URL"},
	} {
		cli{t, nil}.refuses(tt.want, "ready", "--timeout", "50ms", tt.at)
	}
}

// An attempt without an answer is given up for another one: its replica may have gone.
func TestReadyAsksAnother(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	if out, err := run(t, "ready", "--timeout", "4s", server.URL); err != nil || asked.Load() != 3 {
		t.Errorf("%v %s; asked %d times", err, out, asked.Load())
	}
}
