package kube

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// tunnel connects to addr through an HTTP proxy, by CONNECT (RFC 9110, 9.3.6).
func (d *dialer) tunnel(ctx context.Context, proxy *url.URL, addr string) (net.Conn, error) {
	conn, err := d.toProxy(ctx, proxy)
	if err != nil {
		return nil, err
	}
	status, err := d.ask(ctx, conn, proxy, addr)
	switch {
	case ctx.Err() != nil && err != nil:
		err = ctx.Err()
	case err != nil:
		err = &Fault{
			Layer:   LayerProxy,
			Message: fmt.Sprintf("the proxy %s does not answer as a proxy: %v", shown(proxy), innermost(err)),
			Remedy:  "check proxy.https: its scheme (http or https), host and port",
			Err:     err,
		}
	case status != http.StatusOK:
		err = refused(proxy, addr, status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// toProxy connects to the proxy itself, whose certificate, if it has one, is verified with the system's authorities.
func (d *dialer) toProxy(ctx context.Context, proxy *url.URL) (net.Conn, error) {
	port := map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	if port == "" {
		return nil, &Fault{Layer: LayerProxy, Message: fmt.Sprintf("a proxy of the kind %q is not supported", proxy.Scheme), Remedy: "set proxy.https to an http:// or https:// URL"}
	}
	if proxy.Port() != "" {
		port = proxy.Port()
	}
	conn, err := d.tcp(ctx, net.JoinHostPort(proxy.Hostname(), port))
	if err != nil {
		return nil, proxyFault(ctx, proxy, err)
	}
	if proxy.Scheme == "http" {
		return conn, nil
	}
	secure, err := d.secure(ctx, conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, proxyFault(ctx, proxy, err)
	}
	return secure, nil
}

// ask sends the CONNECT request and returns the status of the answer.
func (d *dialer) ask(ctx context.Context, conn net.Conn, proxy *url.URL, addr string) (int, error) {
	deadline := time.Now().Add(d.patience)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(deadline) {
		deadline = sooner
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{"User-Agent": {"aks-flex-node"}}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		plain := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		req.Header.Set("Proxy-Authorization", "Basic "+plain)
	}
	if err := req.Write(conn); err != nil {
		return 0, err
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, req)
	if err != nil {
		return 0, err
	}
	if !stop() {
		return 0, ctx.Err()
	}
	if resp.StatusCode == http.StatusOK && reader.Buffered() > 0 {
		return 0, errors.New("it sends bytes of its own into the tunnel")
	}
	return resp.StatusCode, conn.SetDeadline(time.Time{})
}

// shown is a proxy without user and password.
func shown(proxy *url.URL) string { return proxy.Scheme + "://" + proxy.Host }

// proxyFault says why the proxy itself is not reached.
func proxyFault(ctx context.Context, proxy *url.URL, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	f := &Fault{Layer: LayerProxy, Remedy: "check proxy.https, and that the proxy is running", Err: err}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		f.Message = fmt.Sprintf("the proxy %s is not found: %s", shown(proxy), dnsFault(lookup).Message)
		return f
	}
	if _, ok := errors.AsType[*net.OpError](err); ok && !isTLS(err) {
		what, _ := unreached(err)
		f.Message = fmt.Sprintf("the proxy %s %s", shown(proxy), what)
		return f
	}
	f.Message = fmt.Sprintf("there is no TLS with the proxy %s: %v", shown(proxy), err)
	f.Remedy = "install the authority of its certificate on this machine (update-ca-certificates), or write http:// in proxy.https"
	return f
}

func isTLS(err error) bool {
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	return record || alert || verify
}

// refused says what a proxy's answer to CONNECT means.
func refused(proxy *url.URL, addr string, status int) *Fault {
	f := &Fault{Layer: LayerProxy}
	switch {
	case status == http.StatusProxyAuthRequired && proxy.User == nil:
		f.Message = fmt.Sprintf("the proxy %s asks for a user and a password (407)", shown(proxy))
		f.Remedy = "write them into proxy.https: http://user:password@host:port"
	case status == http.StatusProxyAuthRequired:
		f.Message = fmt.Sprintf("the proxy %s does not accept the user and password (407)", shown(proxy))
		f.Remedy = "correct them in proxy.https"
	case status == http.StatusForbidden || status == http.StatusMethodNotAllowed:
		f.Message = fmt.Sprintf("the proxy %s forbids connections to %s (%d)", shown(proxy), addr, status)
		f.Remedy = "have it allow CONNECT to that address, or list the host in proxy.noProxy if it is reached directly"
	case status >= 500:
		f.Message = fmt.Sprintf("the proxy %s cannot reach %s (%d)", shown(proxy), addr, status)
		f.Remedy = "check node.kubelet.serverURL, or list the host in proxy.noProxy if it is reached directly"
	default:
		f.Message = fmt.Sprintf("the proxy %s does not connect to %s: it answers %d", shown(proxy), addr, status)
		f.Remedy = "check proxy.https and what the proxy allows"
	}
	return f
}
