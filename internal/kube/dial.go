package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"
)

// dialer connects to an API server, directly or through a proxy, and knows for each layer what its failures mean.
type dialer struct {
	proxy Proxy
	tls   *tls.Config
	// ca are the authorities that tls trusts; none for the system's.
	ca  []*x509.Certificate
	net net.Dialer
	// patience bounds each layer: looking up and connecting, the proxy's answer, the handshake.
	patience time.Duration
}

func newDialer(proxy Proxy, ca []*x509.Certificate) *dialer {
	d := &dialer{proxy: proxy, ca: ca, tls: &tls.Config{MinVersion: tls.VersionTLS12}, patience: 10 * time.Second}
	if len(ca) > 0 {
		d.tls.RootCAs = x509.NewCertPool()
		for _, cert := range ca {
			d.tls.RootCAs.AddCert(cert)
		}
	}
	return d
}

// dialTLS connects and verifies; addr is the server's host:port. The error is a *Fault, unless ctx was cancelled.
func (d *dialer) dialTLS(ctx context.Context, _, addr string) (net.Conn, error) {
	conn, err := d.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	secure, err := d.secure(ctx, conn, d.tls)
	if err != nil {
		if ctx.Err() == nil {
			err = d.tlsFault(ctx, addr, err)
		}
		return nil, err
	}
	return secure, nil
}

// connect returns a connection to addr on which TLS can begin.
func (d *dialer) connect(ctx context.Context, addr string) (net.Conn, error) {
	var proxy *url.URL
	if d.proxy != nil {
		req := &http.Request{Method: http.MethodGet, Host: addr, URL: &url.URL{Scheme: "https", Host: addr, Path: "/"}}
		var err error
		if proxy, err = d.proxy(req); err != nil {
			return nil, &Fault{Layer: LayerProxy, Message: "cannot tell the proxy for " + addr, Remedy: "check proxy.https in the configuration", Err: err}
		}
	}
	if proxy != nil {
		return d.tunnel(ctx, proxy, addr)
	}
	conn, err := d.tcp(ctx, addr)
	if err != nil {
		return nil, tcpFault(ctx, addr, err)
	}
	return conn, nil
}

func (d *dialer) tcp(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return d.net.DialContext(ctx, "tcp", addr)
}

// secure does a handshake; it closes conn when that fails.
func (d *dialer) secure(ctx context.Context, conn net.Conn, cfg *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	client := tls.Client(conn, cfg)
	if err := client.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return client, nil
}

// tcpFault says why addr cannot be connected to.
func tcpFault(ctx context.Context, addr string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return dnsFault(lookup)
	}
	what, remedy := unreached(err)
	return &Fault{Layer: LayerTCP, Message: addr + " " + what, Remedy: remedy, Err: err}
}

// unreached says what a failed connect means, and what to do about it.
func unreached(err error) (what, remedy string) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections", "check the port in node.kubelet.serverURL, and that the API server is running"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "cannot be reached: no route", "check this machine's routes (ip route), its VPN, and that the cluster's network is connected to it"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return "does not answer", "a firewall seems to drop the packets: let this machine open TCP connections there, or set proxy.https"
	}
	return fmt.Sprintf("cannot be connected to: %v", innermost(err)), "check node.kubelet.serverURL and this machine's network"
}

func dnsFault(err *net.DNSError) *Fault {
	f := &Fault{Layer: LayerDNS, Err: err}
	if err.IsNotFound {
		f.Message = fmt.Sprintf("the name %s does not exist%s", err.Name, asked(err))
		f.Remedy = "check node.kubelet.serverURL; the name of a private cluster is known only to the name servers of its network"
		return f
	}
	f.Message = fmt.Sprintf("no name server answers the question for %s%s", err.Name, asked(err))
	f.Remedy = "check /etc/resolv.conf, and that this machine reaches its name servers on port 53"
	return f
}

func asked(err *net.DNSError) string {
	if err.Server == "" {
		return ""
	}
	return " (asked " + err.Server + ")"
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// innermost returns the error that the others are wrapped around.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
