package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// transport carries requests to one API server. It speaks HTTP/1.1: a watch then has a connection of its own, and a connection that
// died silently holds up no other request.
type transport struct {
	certFile string

	mu      sync.Mutex
	current *http.Transport
	seen    fs.FileInfo
}

// newTransport makes the transport of a configuration without its tokens. Every connection is made by a dialer, so a server
// that is not reached is a *Fault.
func newTransport(cfg *rest.Config, proxy Proxy) (*transport, error) {
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("cannot use the API server %q: its URL must be https://host[:port]", cfg.Host)
	}
	if cfg.Insecure {
		return nil, fmt.Errorf("cannot use the API server %s: insecure-skip-tls-verify is set; give its certificate authority instead", cfg.Host)
	}
	ca, err := authorities(cfg.TLSClientConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot use the CA of the API server %s: %w", cfg.Host, err)
	}
	d := newDialer(proxy, ca)
	d.tls.ServerName = u.Hostname()
	if cfg.ServerName != "" {
		d.tls.ServerName = cfg.ServerName
	}
	if cfg.CertFile != "" || len(cfg.CertData) > 0 {
		d.tls.GetClientCertificate = clientCertificate(cfg.TLSClientConfig)
		if _, err := d.tls.GetClientCertificate(nil); err != nil {
			return nil, err
		}
	}
	return &transport{certFile: cfg.CertFile, current: &http.Transport{
		DialTLSContext:        d.dialTLS,
		DialContext:           refuse,
		TLSHandshakeTimeout:   d.patience,
		ResponseHeaderTimeout: requestTimeout,
		IdleConnTimeout:       30 * time.Second,
	}}, nil
}

// refuse keeps requests from going out without TLS.
func refuse(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("internal error: a request to the API server without TLS")
}

// RoundTrip implements http.RoundTripper. When the certificate's file has been replaced, connections made with the old one are not
// used again.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.fresh().RoundTrip(req)
}

func (t *transport) fresh() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.certFile == "" {
		return t.current
	}
	info, err := os.Stat(t.certFile)
	if err != nil {
		return t.current
	}
	if t.seen != nil && !(os.SameFile(t.seen, info) && t.seen.ModTime().Equal(info.ModTime())) {
		old := t.current
		t.current = old.Clone()
		old.CloseIdleConnections()
	}
	t.seen = info
	return t.current
}

func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current.CloseIdleConnections()
}

// clientCertificate reads the client certificate for each handshake, so that the latest is shown.
func clientCertificate(cfg rest.TLSClientConfig) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		var pair tls.Certificate
		var err error
		if cfg.CertFile != "" {
			pair, err = tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		} else {
			pair, err = tls.X509KeyPair(cfg.CertData, cfg.KeyData)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot use the client certificate %s: %w", cfg.CertFile, err)
		}
		return &pair, nil
	}
}

// authorities returns the certificate authorities of a configuration; none for the system's.
func authorities(cfg rest.TLSClientConfig) ([]*x509.Certificate, error) {
	text := cfg.CAData
	if len(text) == 0 && cfg.CAFile != "" {
		var err error
		if text, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, err
		}
	}
	if len(text) == 0 {
		return nil, nil
	}
	var list []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d does not parse: %w", len(list)+1, err)
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("it holds no PEM certificate")
	}
	return list, nil
}
