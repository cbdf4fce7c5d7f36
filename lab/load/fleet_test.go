package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// Each agent keeps its connection for all requests; a response with another status is an error.
func TestFleet(t *testing.T) {
	var connections, asked atomic.Int64
	status := atomic.Int64{}
	status.Store(http.StatusNotModified)
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			w.Header().Set("ETag", r.URL.Path)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(int(status.Load()))
		}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	target := Target{
		TLS: &tls.Config{RootCAs: pool}, Status: http.StatusNotModified,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			return http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/x", nil)
		},
	}
	const agents = 20
	f, err := target.Open(t.Context(), agents)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Agents() != agents || asked.Load() != agents {
		t.Errorf("%d agents have asked %d times", f.Agents(), asked.Load())
	}
	p99, err := f.Pace(t.Context(), 400, 500*time.Millisecond)
	if err != nil || p99 <= 0 {
		t.Errorf("%v %v", p99, err)
	}
	if got := asked.Load() - agents; got < 190 || got > 210 {
		t.Errorf("at 400 a second, %d were asked in half a second", got)
	}
	r, err := target.Request(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if code, header, err := f.Do(3, r); code != 304 || header.Get("ETag") != "/x" || err != nil {
		t.Errorf("%d %v %v", code, header, err)
	}
	if connections.Load() != agents {
		t.Errorf("%d agents have made %d connections", agents, connections.Load())
	}
	status.Store(http.StatusForbidden)
	if _, err := f.Pace(t.Context(), 400, 100*time.Millisecond); err == nil {
		t.Error("403 is no error")
	}
	if _, err := target.Open(t.Context(), agents); err == nil {
		t.Error("403 at the first request is no error")
	}
	status.Store(http.StatusTooManyRequests)
	if _, err := target.Open(t.Context(), agents); err == nil {
		t.Error("429 is no error, and was not asked for")
	}
	target.Throttled = true
	throttled, err := target.Open(t.Context(), agents)
	if err != nil {
		t.Fatal(err)
	}
	defer throttled.Close()
	if wanted, refused := throttled.Answered(); wanted != 0 || refused != agents {
		t.Errorf("%d answered, %d refused", wanted, refused)
	}
}
