package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const rereadInterval = 10 * time.Second

// reread returns a function that returns the value in files that may be replaced while the program
// runs: it is read again if it is old; the old one remains if that fails.
func reread[T any](read func() (T, error)) func() (T, error) {
	var mu sync.Mutex
	var value T
	var at time.Time // of the last attempt; zero until one has succeeded
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) < rereadInterval {
			return value, nil
		}
		if next, err := read(); err == nil {
			value = next
		} else if at.IsZero() {
			return next, err
		}
		at = time.Now()
		return value, nil
	}
}

// tlsConfig returns a listener's configuration; nil for one without TLS. With a CA, clients must
// show a certificate of it.
func tlsConfig(l Listen, clientCA string) (*tls.Config, error) {
	if l.CertFile == "" {
		return nil, nil
	}
	present := reread(func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the certificate: %w", err)
		}
		config := &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: protocols,
		}
		if clientCA != "" {
			config.ClientAuth = tls.RequireAndVerifyClientCert
			config.ClientCAs, err = readPool(clientCA)
		}
		return config, err
	})
	_, err := present()
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return present() },
	}, err
}

var protocols = []string{"h2", "http/1.1"}

func readPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CAs: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("cannot use %s: it has no certificate", path)
	}
	return pool, nil
}

// patience limits the time of a client before it is identified: header for the first message of a
// handshake, and for a header of at most headerBytes; request for the rest of a handshake
// (fair.Connections.TakeTurns), and for all of a request.
type patience struct {
	header, request time.Duration
	headerBytes     int
}

var usualPatience = patience{10 * time.Second, 30 * time.Second, 32 << 10}

// newServer returns a server that slow clients cannot block. Idle connections outlive a poll
// interval.
func newServer(h http.Handler, log *slog.Logger, p patience) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: p.header, ReadTimeout: p.request,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: p.headerBytes,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 32},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// listen opens an address, with TLS if there is a configuration for it. Handshakes, which cost this
// replica much work, take turns: two for each processor.
func listen(
	address string, config *tls.Config, connections *fair.Connections, p patience,
) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	l = connections.Listen(l)
	if config == nil {
		return l, nil
	}
	config.NextProtos = protocols
	connections.TakeTurns(config, 2*runtime.GOMAXPROCS(0), p.request)
	return tls.NewListener(l, config), nil
}

// arrivals holds connections before their first request, which a server drops when it shuts down.
type arrivals struct{ connections sync.Map }

// wait waits until all connected clients have been answered, or until a timeout: some only open a
// connection.
func (a *arrivals) wait() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for some := true; some && ctx.Err() == nil; {
		store.Pause(ctx, 20*time.Millisecond) // also for the handler of the last one to start
		some = false
		a.connections.Range(func(any, any) bool { some = true; return false })
	}
}

// leave makes clients end their connections while the replica drains.
func (s *service) leave(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&leaving{ResponseWriter: w, draining: &s.health.draining}, r)
	})
}

// leaving makes an answer the last one of its connection while the replica drains; net/http turns
// that into GOAWAY.
type leaving struct {
	http.ResponseWriter
	draining *atomic.Bool
	writes   bool
}

const answerTime = 10 * time.Second // bounds the time in which a client reads an answer

func (l *leaving) WriteHeader(status int) {
	l.close()
	l.ResponseWriter.WriteHeader(status)
}

func (l *leaving) Write(b []byte) (int, error) {
	l.close()
	if !l.writes { // the client may not read; an answer has at most about half a megabyte
		l.writes = true
		end := time.Now().Add(answerTime)
		_ = http.NewResponseController(l.ResponseWriter).SetWriteDeadline(end) // else as before
	}
	return l.ResponseWriter.Write(b)
}

func (l *leaving) close() {
	if l.draining.Load() {
		l.Header().Set("Connection", "close")
	}
}

// Unwrap is for http.ResponseController.
func (l *leaving) Unwrap() http.ResponseWriter { return l.ResponseWriter }
