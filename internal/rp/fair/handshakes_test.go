package fair

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections within the process.
type pipes struct {
	arrived chan net.Conn
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.arrived:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.arrived <- there
	return here
}

// secured is a server whose handshakes need processor time, which the current ones share.
type secured struct {
	*pipes
	trusted *x509.CertPool
}

const (
	work    = time.Second // of a handshake
	headers = 10 * time.Second
)

func newSecured(t *testing.T, atOnce int, of *Connections) *secured {
	some := httptest.NewUnstartedServer(nil)
	some.StartTLS() // for its certificate
	pair, root := some.TLS.Certificates[0], some.Certificate()
	some.Close()
	processor := make(chan struct{}, 1)
	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		const slice = 100 * time.Millisecond
		for range work / slice {
			processor <- struct{}{}
			time.Sleep(slice)
			<-processor
		}
		return &pair, nil
	}}
	of.TakeTurns(config, atOnce, headers)
	s := &secured{&pipes{make(chan net.Conn), make(chan struct{})}, x509.NewCertPool()}
	s.trusted.AddCert(root)
	server := &http.Server{
		ReadHeaderTimeout: headers, ErrorLog: log.New(io.Discard, "", 0), ConnState: of.State,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotModified)
		}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(tls.NewListener(of.Listen(s.pipes), config)) // ends with Close
	}()
	t.Cleanup(func() {
		// Close writes to connections under the lock that they take when they end, and simulated
		// time stops while a goroutine waits for a lock: let the ending ones end first.
		time.Sleep(headers)
		_ = server.Close()
		<-ended
		time.Sleep(headers) // until no connection waits any more for the other side to take its end
	})
	return s
}

// ask connects as an agent with a new connection, and returns the time it took.
func (s *secured) ask() (took time.Duration, err error) {
	began := time.Now()
	transport := &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: s.trusted, ServerName: "example.com"},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return s.dial(), nil
		},
	}
	r, err := (&http.Client{Transport: transport}).Get("https://example.com/")
	if err != nil {
		return 0, err
	}
	if r.StatusCode != http.StatusNotModified {
		err = errors.New(r.Status)
	}
	return time.Since(began), errors.Join(err, r.Body.Close())
}

// However many agents come at once, all are answered, in order of arrival: none is closed because
// of the load.
func TestStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 60 // six times as much work as there is time for one
		s := newSecured(t, 2, &Connections{})
		var mu sync.Mutex
		var took []time.Duration
		var all sync.WaitGroup
		for range agents {
			all.Go(func() {
				d, err := s.ask()
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, d)
			})
		}
		all.Wait()
		if first, last := took[0], took[agents-1]; first > 3*work || last != agents*work {
			t.Errorf("the first was answered after %s, the last after %s", first, last)
		}
	})
}

// A client that stalls in its handshake keeps no turn, and keeps its connection only for a limited
// time.
func TestClientsThatDoNotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &Connections{}
		s := newSecured(t, 1, of)
		for range 3 {
			silent := s.dial()
			defer silent.Close()
		}
		hello := &firstOnly{Conn: s.dial()}
		defer hello.Close()
		go func() {
			_ = tls.Client(hello, &tls.Config{RootCAs: s.trusted, ServerName: "example.com"}).Handshake()
		}()
		synctest.Wait()
		if took, err := s.ask(); err != nil || took > 3*work {
			t.Errorf("%s %v", took, err)
		}
		time.Sleep(headers + 2*work)
		synctest.Wait()
		equal(t, "open connections", of.Open(), 0)
	})
}

// firstOnly sends the first message of a handshake, reads the answer, and then stalls.
type firstOnly struct {
	net.Conn
	sent bool
}

func (c *firstOnly) Write(b []byte) (int, error) {
	if c.sent {
		return len(b), nil
	}
	c.sent = true
	return c.Conn.Write(b)
}

// A connection that waits for its turn, or has it, is not replaced: new ones are refused.
func TestWhoWaitsForATurnIsNotQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 5
		s := newSecured(t, 1, &Connections{Max: room})
		var all sync.WaitGroup
		for i := range 2 * room {
			all.Go(func() {
				if _, err := s.ask(); (err == nil) != (i < room) {
					t.Errorf("%d: %v", i, err)
				}
			})
			synctest.Wait() // for it to be there
		}
		all.Wait()
	})
}
