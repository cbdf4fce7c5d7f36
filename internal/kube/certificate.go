package kube

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// certificate is a client certificate that somebody else replaces in its file.
type certificate struct {
	certFile, keyFile string

	mu     sync.Mutex
	info   fs.FileInfo // of certFile when it was read
	loaded *tls.Certificate
}

// get returns the certificate as it is in the file now.
func (c *certificate) get() (*tls.Certificate, error) {
	pair, _, err := c.refresh()
	return pair, err
}

// refresh reads the certificate if its file has changed, and reports whether it replaced another.
func (c *certificate) refresh() (pair *tls.Certificate, replaced bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.certFile) // through kubelet's link to the latest one
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the client certificate: %w", err)
	}
	if c.loaded != nil && os.SameFile(info, c.info) && info.ModTime().Equal(c.info.ModTime()) {
		return c.loaded, false, nil
	}
	read, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, false, fmt.Errorf("cannot use the client certificate in %s: %w", c.certFile, err)
	}
	replaced = c.loaded != nil
	c.loaded, c.info = &read, info
	return c.loaded, replaced, nil
}

// rotating makes sure that a request goes out with the certificate that is in the file: the API
// server judges a connection by the certificate with which it was opened.
type rotating struct {
	http.RoundTripper
	certificate *certificate
}

func (r *rotating) RoundTrip(request *http.Request) (*http.Response, error) {
	_, replaced, err := r.certificate.refresh()
	if err != nil {
		if request.Body != nil {
			request.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	if replaced {
		utilnet.CloseIdleConnectionsFor(r.RoundTripper)
	}
	return r.RoundTripper.RoundTrip(request)
}

// WrappedRoundTripper lets CloseIdleConnectionsFor find the transport below.
func (r *rotating) WrappedRoundTripper() http.RoundTripper { return r.RoundTripper }
