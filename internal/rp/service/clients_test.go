package service

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
)

// bounded serves over TLS within bounds, and returns where, and a client that trusts it.
func bounded(
	t *testing.T, n fair.Network, p patience, h http.Handler,
) (address string, of *fair.Connections, newClient func() *http.Client) {
	t.Helper()
	trusted := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(trusted.Close)
	server := newServer(h, slog.New(slog.DiscardHandler), p)
	of = &fair.Connections{Max: n.Max, PerAddress: n.PerAddress}
	server.ConnState = of.State
	l := must(listen("127.0.0.1:0", &tls.Config{Certificates: trusted.TLS.Certificates}, of, p))
	go func() { _ = server.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String(), of, func() *http.Client {
		transport := trusted.Client().Transport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c := must(net.Dial("tcp", address))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ended waits until the other side has closed a connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	must(0, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := io.Copy(io.Discard, c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the connection is held open")
	}
}

func poll(t *testing.T, client *http.Client, address string) {
	t.Helper()
	r := must(client.Get("https://" + address))
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusNotModified {
		t.Errorf("%s, %v", r.Status, err)
	}
}

var unmodified = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotModified)
})

// Clients that hold connections and say nothing make room for who has something to ask, those that
// have been quiet for longest first.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]fair.Network{
		"of all": {Max: 8, PerAddress: 100}, "of one address": {Max: 100, PerAddress: 8},
	} {
		t.Run(name, func(t *testing.T) {
			address, of, newClient := bounded(t, n, usualPatience, unmodified)
			agent := newClient()
			poll(t, agent, address) // and it is idle then
			var silent []net.Conn
			for range 20 {
				silent = append(silent, dial(t, address))
			}
			for range 5 {
				poll(t, newClient(), address)
			}
			poll(t, agent, address)
			ended(t, silent[0])
			if open := of.Open(); open > 8 {
				t.Errorf("%d connections", open)
			}
		})
	}
}

// When all connections are at work, one more is refused at once, and let in later.
func TestConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	address, of, newClient := bounded(t, fair.Network{Max: 2, PerAddress: 100}, usualPatience,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-end
			w.WriteHeader(http.StatusNotModified)
		}))
	answered := make(chan struct{})
	for range 2 {
		client := newClient()
		go func() {
			poll(t, client, address)
			client.CloseIdleConnections()
			answered <- struct{}{}
		}()
		<-begun
	}
	ended(t, dial(t, address))
	if open := of.Open(); open != 2 {
		t.Errorf("%d connections", open)
	}
	close(end)
	<-answered
	<-answered
	go func() { <-begun }()
	poll(t, newClient(), address)
}

// Who sends its header or its body slowly, or without end, is not waited for.
func TestLyingClients(t *testing.T) {
	t.Parallel()
	bounds := patience{time.Second, time.Second, 4 << 10}
	address, _, newClient := bounded(t, fair.DefaultLimits().Connections, bounds, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<10)); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusNotModified)
		}))
	plain := dial(t, address) // no handshake
	secured := func() net.Conn {
		c := tls.Client(dial(t, address), &tls.Config{InsecureSkipVerify: true}) // of a liar
		must(0, c.Handshake())
		return c
	}
	for name, says := range map[string]string{
		"header": "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"body":   "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"large":  "GET / HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("x", 64<<10),
		"endless": "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 4),
	} {
		t.Run(name, func(t *testing.T) {
			c := secured()
			_, _ = io.WriteString(c, says) // it may be cut off already
			ended(t, c)
		})
	}
	ended(t, plain)
	poll(t, newClient(), address)
}
