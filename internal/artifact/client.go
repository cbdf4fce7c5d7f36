package artifact

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// NewClient makes the HTTP client for downloads. The proxy is chosen by the given function alone,
// never by the environment; nil means no proxy. Redirects never leave https. HTTP/2 is off: one
// stalled connection then stalls one artifact only.
func NewClient(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			Proxy:                  proxy,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  30 * time.Second,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			Protocols:              &protocols,
			OnProxyConnectResponse: checkProxy,
		},
	}
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return &Error{Cause: Redirect, what: "it redirects without end"}
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return &Error{Cause: Redirect, what: "it redirects from https to " + req.URL.Scheme}
	}
	return nil
}

// checkProxy reports a proxy's refusal with its status, which the transport itself would only put
// into a text.
func checkProxy(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	e := statusError(resp.StatusCode)
	e.what = "the proxy " + proxy.Host + " refuses the connection: " + e.what
	return e
}
