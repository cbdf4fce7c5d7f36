package service

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
)

// certificate is a pair of files that may be replaced while the program runs.
type certificate struct {
	certFile, keyFile string

	mu      sync.Mutex
	pair    *tls.Certificate
	changed time.Time
	checked time.Time
}

// recheck is how often the files are checked.
const recheck = 10 * time.Second

// get returns the certificate, read again if its file has changed. A new one that cannot be read
// leaves the old in use.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.checked) < recheck {
		return c.pair, nil
	}
	c.checked = time.Now()
	info, err := os.Stat(c.certFile)
	if err == nil && c.pair != nil && info.ModTime().Equal(c.changed) {
		return c.pair, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile)
	}
	if err != nil {
		if c.pair != nil {
			return c.pair, nil
		}
		return nil, fmt.Errorf("cannot read the certificate: %w", err)
	}
	c.pair, c.changed = &pair, info.ModTime()
	return c.pair, nil
}

// tlsConfig is what a listener shows, and, with a CA, whom it demands a certificate of.
func tlsConfig(l Listen, clientCA string) (*tls.Config, error) {
	c := &certificate{certFile: l.CertFile, keyFile: l.KeyFile}
	if _, err := c.get(nil); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
	if clientCA != "" {
		pool, err := readPool(clientCA)
		if err != nil {
			return nil, err
		}
		config.ClientCAs, config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// readPool reads CA certificates.
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

// newServer is an http.Server that slow and large clients cannot hold up. Idle connections outlive
// the interval between two polls.
func newServer(h http.Handler, log *slog.Logger, n fair.Network) *http.Server {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return &http.Server{
		Handler: h, ReadHeaderTimeout: seconds(n.HeaderSeconds),
		ReadTimeout: seconds(n.RequestSeconds), WriteTimeout: seconds(n.AnswerSeconds),
		IdleTimeout: seconds(n.IdleSeconds), MaxHeaderBytes: n.HeaderBytes,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: n.Streams},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// listen opens an address, with TLS if there is a configuration for it. Handshakes, of which this
// replica's part is nothing but work, take turns: two for each processor.
func listen(
	address string, config *tls.Config, connections *fair.Connections, n fair.Network,
) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	l = connections.Listen(l)
	if config == nil {
		return l, nil
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	patience := time.Duration(n.RequestSeconds) * time.Second
	fair.NewHandshakes(2*runtime.GOMAXPROCS(0), patience).Configure(config)
	return tls.NewListener(l, config), nil
}
