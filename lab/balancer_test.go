package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// standIn is a replica that returns its name over TLS, with a readiness endpoint without TLS.
type standIn struct {
	*httptest.Server
	health *httptest.Server
	status atomic.Int64
	asked  atomic.Int64
}

func newStandIn(t *testing.T, name string) *standIn {
	s := &standIn{}
	s.status.Store(http.StatusOK)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		fmt.Fprint(w, name)
	}))
	s.health = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(s.status.Load()))
	}))
	t.Cleanup(s.kill)
	return s
}

// kill stops a replica and its connections, as a signal does. It closes the listener first, or a
// client would reconnect to a replica that is about to stop, and fail again.
func (s *standIn) kill() {
	_ = s.Listener.Close()
	s.CloseClientConnections()
	s.Close()
	s.health.CloseClientConnections()
	s.health.Close()
}

// balance starts a balancer in front of replicas and returns it and its URL.
func balance(t *testing.T, all ...*standIn) (*balancer, string) {
	t.Helper()
	var replicas []balanced
	for i, s := range all {
		replicas = append(replicas,
			balanced{fmt.Sprint(i), s.Listener.Addr().String(), s.health.URL})
	}
	b := newBalancer(replicas)
	b.probe(t.Context())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := b.serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); serving.Wait() })
	return b, "https://" + listener.Addr().String()
}

// poller returns a client with its own connections that trusts all replicas.
func poller(t *testing.T, all ...*standIn) *http.Client {
	pool := x509.NewCertPool()
	for _, s := range all {
		pool.AddCert(s.Certificate())
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func ask(c *http.Client, url string) (string, error) {
	response, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// Connections are spread. When a replica is killed, only the polls that it is answering may fail:
// the next ones go to the other replicas.
func TestBalancerWhenAReplicaIsKilled(t *testing.T) {
	a, b, c := newStandIn(t, "a"), newStandIn(t, "b"), newStandIn(t, "c")
	balancer, url := balance(t, a, b, c)
	const pollers, polls = 9, 60
	var killed sync.Once
	var failed atomic.Int64
	var polling, connected sync.WaitGroup
	connected.Add(pollers)
	for range pollers {
		client := poller(t, a, b, c)
		polling.Go(func() {
			if _, err := ask(client, url); err != nil {
				t.Errorf("before it: %v", err)
			}
			connected.Done()
			connected.Wait()
			for n := range polls {
				if n == polls/3 {
					killed.Do(func() {
						b.kill()
						balancer.probe(t.Context())
					})
				}
				if _, err := ask(client, url); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	polling.Wait()
	for name, s := range map[string]*standIn{"a": a, "b": b, "c": c} {
		if s.asked.Load() < pollers/3 {
			t.Errorf("%s was asked %d times", name, s.asked.Load())
		}
	}
	if n := failed.Load(); n > pollers {
		t.Errorf("%d of %d polls failed; only those on the way may", n, pollers*polls)
	}
	if _, err := ask(poller(t, a, b, c), url); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// A draining replica keeps its connections and gets no new ones; one that does not respond loses
// them; one that is ready again is used again.
func TestBalancerHeedsHealth(t *testing.T) {
	a, b := newStandIn(t, "a"), newStandIn(t, "b")
	b.status.Store(http.StatusServiceUnavailable)
	balancer, url := balance(t, a, b)
	first := poller(t, a, b)
	says := func(c *http.Client, want string) {
		t.Helper()
		if got, err := ask(c, url); got != want {
			t.Errorf("%q answers, want %q (%v)", got, want, err)
		}
	}
	says(first, "a")
	a.status.Store(http.StatusServiceUnavailable)
	b.status.Store(http.StatusOK)
	balancer.probe(t.Context())
	says(first, "a")
	says(poller(t, a, b), "b")

	a.health.Close()
	balancer.probe(t.Context())
	says(first, "b")
	b.status.Store(http.StatusServiceUnavailable)
	balancer.probe(t.Context())
	if got, err := ask(poller(t, a, b), url); err == nil {
		t.Errorf("none is ready, and %q answers", got)
	}
	b.status.Store(http.StatusOK)
	balancer.probe(t.Context())
	says(poller(t, a, b), "b")
}
