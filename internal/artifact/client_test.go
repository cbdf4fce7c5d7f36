package artifact

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// fetchOnce gets one small binary from raw over real sockets and returns the first error, if any.
func fetchOnce(t *testing.T, raw string, client *http.Client) error {
	t.Helper()
	b := noise(1, 1000)
	a := binary(Kubelet, b)
	a.URL = raw
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &Fetcher{Store: t.TempDir(), Artifacts: []Artifact{a}, Source: Source{HTTP: client}}
	var first error
	f.Events = func(e Event) {
		if e.Kind == Retrying {
			first = e.Err
			cancel()
		}
	}
	err := run(ctx, f)
	if first != nil {
		err = first
	}
	if got := present(f.Store, a.ID); got != (err == nil) {
		t.Errorf("entry %v, error %v", got, err)
	}
	return err
}

func quiet(h http.HandlerFunc, start func(*httptest.Server)) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	start(s)
	return s
}

func TestClient(t *testing.T) {
	ok := serve(noise(1, 1000), "")
	secure := quiet(ok, (*httptest.Server).StartTLS)
	defer secure.Close()
	plain := quiet(ok, (*httptest.Server).Start)
	defer plain.Close()
	down := quiet(http.RedirectHandler(plain.URL+"/secret?sig=hidden", http.StatusFound).ServeHTTP,
		(*httptest.Server).StartTLS)
	defer down.Close()
	denying := quiet(status(http.StatusProxyAuthRequired), (*httptest.Server).Start)
	defer denying.Close()
	trusting := func(s *httptest.Server) *http.Client {
		c := NewClient(nil)
		trusting := s.Client().Transport.(*http.Transport)
		c.Transport.(*http.Transport).TLSClientConfig = trusting.TLSClientConfig.Clone()
		return c
	}
	through := func(proxy string) *http.Client {
		u, _ := url.Parse(proxy)
		return NewClient(http.ProxyURL(u))
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	tests := []struct {
		name   string
		url    string
		client *http.Client
		cause  Cause
		says   string
	}{
		{"trusted", secure.URL, trusting(secure), "", ""},
		{"plain http for a pinned digest", plain.URL, NewClient(nil), "", ""},
		{"unknown authority", secure.URL, NewClient(nil), TLS,
			"unknown authority; check the machine's clock"},
		{"plain http on an https port", strings.Replace(plain.URL, "http:", "https:", 1),
			NewClient(nil), TLS, "server gave HTTP response to HTTPS client"},
		{"redirect to http", down.URL, trusting(down), Redirect, "it redirects from https to http"},
		{"refused", "http://" + closed.Addr().String(), NewClient(nil), Refused,
			"connection refused"},
		{"proxy wants a password", secure.URL, through(denying.URL), ProxyAuth,
			"refuses the connection: HTTP status 407 Proxy Authentication Required; put the " +
				"proxy's user"},
		{"proxy is down", secure.URL, through("http://" + closed.Addr().String()), Refused, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := fetchOnce(t, tt.url+"/kubelet?sig=hidden", tt.client)
			if tt.cause == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e := new(Error)
			if !errors.As(err, &e) || e.Cause != tt.cause ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("secret in %v", err)
			}
		})
	}
}

func TestClientIgnoresTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	tr := NewClient(nil).Transport.(*http.Transport)
	if tr.Proxy != nil {
		t.Error("there is a proxy function that was not given")
	}
}
