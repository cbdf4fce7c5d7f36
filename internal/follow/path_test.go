package follow

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// path is a connection whose packets are lost without a word once it is dead.
type path struct {
	net.Conn
	dead *atomic.Bool
}

func (p path) Write(b []byte) (int, error) {
	if p.dead.Load() {
		return len(b), nil
	}
	return p.Conn.Write(b)
}

func (p path) Read(b []byte) (int, error) {
	for {
		n, err := p.Conn.Read(b)
		if err != nil || !p.dead.Load() {
			return n, err
		}
	}
}

// ways accepts the other ends of connections in memory.
type ways struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (w *ways) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *ways) Close() error   { w.once.Do(func() { close(w.closed) }); return nil }
func (w *ways) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// A poll whose path has died is lost; the next one takes another path, and does not wait a quarter
// of an hour for TCP.
func TestADeadPathIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		w := &ways{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Write([]byte("{}"))
			})}
		go server.Serve(w)
		defer server.Close()
		client := NewClient(nil, nil)
		transport := client.Transport.(*http.Transport)
		transport.Protocols, transport.ResponseHeaderTimeout = &protocols, 0
		defer transport.CloseIdleConnections()
		var dead []*atomic.Bool
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			mine, others := net.Pipe()
			w.conns <- others
			dead = append(dead, &atomic.Bool{})
			return path{mine, dead[len(dead)-1]}, nil
		}
		poll := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider/", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ask(client, req)
			return err
		}
		if err := poll(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the transport may keep the connection later than it hands it out
		dead[0].Store(true)
		began := time.Now()
		if err := poll(); err == nil {
			t.Error("a poll on a dead path was answered")
		}
		if err := poll(); err != nil || len(dead) != 2 {
			t.Errorf("the next poll: %v, over %d connections", err, len(dead))
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}
