package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Connection is the clients of one cluster, made of one access. It is never changed: another access
// makes another one, and everything that runs on the old one ends.
type Connection struct {
	// Approvals answer certificate requests, for which machines wait: without a limit of our own.
	// Secrets make and delete bootstrap tokens. Watches list, watch and probe; their requests have
	// no timeout in the transport, since a watch has none.
	Approvals, Secrets, Watches kubernetes.Interface
	// ServerURL and CA (PEM) are what nodes are told.
	ServerURL string
	CA        []byte
	// Version asks for the API server's version; nil asks Watches. Fakes of client-go cannot.
	Version func(ctx context.Context) (string, error)

	fingerprint, endpoint string // of the access
	dns                   string // of the access
	doubtful              *atomic.Bool
}

// Doubtful tells that the API server has refused the credentials, or that its certificate was not
// the one expected.
func (c *Connection) Doubtful() bool { return c.doubtful != nil && c.doubtful.Load() }

// requestTimeout bounds one request to a cluster; watches are not bounded by it.
const requestTimeout = 10 * time.Second

// effectTimeout bounds one request that changes something in a cluster. It ends before another
// replica can own the cluster. A request that was cut short may have been carried out: it is done
// again, and finds that.
const effectTimeout = store.OwnerMargin

// The limits of the client that makes and deletes Secrets, per second.
const secretsQPS, secretsBurst = 50, 100

// Dial makes the clients of an access. It makes no request.
func Dial(a Access) (*Connection, error) {
	base := rest.CopyConfig(a.Config)
	base.UserAgent = "flexnode-rp"
	if base.TLSClientConfig.CAFile != "" || base.BearerTokenFile != "" {
		return nil, errors.New("internal error: an access that names files")
	}
	c := &Connection{ServerURL: base.Host, CA: base.CAData, doubtful: &atomic.Bool{}}
	base.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &doubting{next: next, doubtful: c.doubtful}
	})
	for _, lane := range []struct {
		client  *kubernetes.Interface
		qps     float32
		timeout time.Duration
	}{
		{&c.Approvals, -1, requestTimeout},
		{&c.Secrets, secretsQPS, requestTimeout},
		{&c.Watches, -1, 0},
	} {
		config := rest.CopyConfig(base)
		config.QPS, config.Burst, config.Timeout = lane.qps, secretsBurst, lane.timeout
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
		}
		*lane.client = client
	}
	return c, nil
}

// doubting remembers whether credentials or certificates were refused last.
type doubting struct {
	next     http.RoundTripper
	doubtful *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (d *doubting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(r)
	switch {
	case err != nil && isTrust(err), err == nil && response.StatusCode == http.StatusUnauthorized:
		d.doubtful.Store(true)
	case err == nil:
		d.doubtful.Store(false)
	}
	return response, err
}

// isTrust reports whether an error is about certificates, ours or the API server's.
func isTrust(err error) bool {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	return errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &host) ||
		errors.As(err, &verification) || errors.As(err, &alert)
}
