package follow

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// NewClient makes the HTTP client for the provider. The proxy is chosen by the given function; nil
// means none. It follows no redirect, asks for nothing compressed, and keeps one HTTP/2 connection.
func NewClient(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  proxy,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  90 * time.Second, // longer than a long poll
			IdleConnTimeout:        5 * time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
			MaxConnsPerHost:        2,
		},
	}
}
