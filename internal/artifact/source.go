package artifact

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Source holds the places from which artifacts can be fetched.
type Source struct {
	Mirrors []string // base URLs, tried in order before upstream; each serves <base>/<host>/<path>
	// Directory, if set, holds the same layout as files and is the only place that is tried.
	Directory    string
	TrustMirrors bool // reads checksums from mirrors too (artifacts.trustMirrorChecksums)
	// Trusted, if set, refuses a checksum file in Directory that users other than root can change.
	Trusted func(file string) error
	HTTP    *http.Client // makes the requests (NewClient)
	// Progress, if set, is called when a checksum is requested again, by several goroutines.
	Progress func()
}

// NewSource returns the source of a configuration.
func NewSource(c config.Artifacts, client *http.Client) Source {
	mirrors := slices.Concat([]string{c.Mirror}, c.Mirrors)
	mirrors = slices.DeleteFunc(mirrors, func(m string) bool { return m == "" })
	return Source{Mirrors: mirrors, Directory: c.Directory, TrustMirrors: c.TrustMirrorChecksums,
		HTTP: client}
}

type candidate struct {
	via string // groups candidates by origin: mirror's base URL, directory, or "" for upstream
	// url is a full URL, or a file path if file is set.
	url       string
	file, zst bool

	// While it is on trial: how often it has failed, whether it is given up, its last error, its rate
	// in bytes per second when it was slow, and the rate of the best other place.
	strikes     int
	dead        bool
	last        *Error
	rate, rival int64
}

func (c candidate) String() string {
	if c.file {
		return c.url
	}
	return Redact(c.url)
}

// candidates lists the places of an artifact in the order of trying them. A mirror's zstd variant
// comes before its plain file; in a directory, which costs no bandwidth, the plain file is first.
func (s Source) candidates(a Artifact) ([]candidate, error) {
	plain, err := s.places(a.URL)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, c := range plain {
		zst := c
		zst.url, zst.zst = a.zstURL(c.url), true
		switch {
		case zst.url == "" || c.via == "":
			list = append(list, c)
		case c.file:
			list = append(list, c, zst)
		default:
			list = append(list, zst, c)
		}
	}
	return list, nil
}

func (s Source) places(raw string) ([]candidate, error) {
	u, err := parseURL("artifact URL", raw)
	if err != nil {
		return nil, err
	}
	clean := path.Join("/", u.Host, path.Clean("/"+u.Path))
	if s.Directory != "" {
		return []candidate{{via: s.Directory, url: filepath.Join(s.Directory, clean), file: true}}, nil
	}
	var list []candidate
	for _, m := range s.Mirrors {
		base, err := parseURL("mirror", m)
		if err != nil {
			return nil, err
		}
		base.Path = strings.TrimSuffix(base.Path, "/") + clean
		list = append(list, candidate{via: m, url: base.String()})
	}
	return append(list, candidate{url: raw}), nil
}

func parseURL(what, raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, fmt.Errorf("cannot use %s %s: it must be an https URL", what, Redact(raw))
	}
	return u, nil
}

// Hosts lists the hosts that a fetch of the artifacts may contact, in order, without redirects.
func Hosts(arts []Artifact, s Source) []string {
	var hosts []string
	for _, a := range arts {
		places, _ := s.places(a.URL)
		for _, p := range places {
			if u, err := url.Parse(p.url); err == nil && !p.file && !slices.Contains(hosts, u.Host) {
				hosts = append(hosts, u.Host)
			}
		}
	}
	return hosts
}

// Upstream returns the URL at which an artifact is published, as far as known without a request.
func Upstream(a Artifact, overrides map[string]config.Override) string {
	upstream := projects[a.Name].upstream(strings.TrimPrefix(a.Version, "v"), a.Arch)
	return cmp.Or(overrideOf(a, overrides).URL, a.URL, upstream)
}

// NewClient returns an HTTP client for downloads. The given function alone chooses the proxy, never
// the environment; nil means no proxy. Redirects never leave https. HTTP/2 is off, so that a
// stalled connection stalls one artifact only.
func NewClient(proxy func(*http.Request) (*url.URL, error)) *http.Client {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			Proxy: proxy, DialContext: dialer.DialContext,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
			IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10,
			DisableCompression: true, Protocols: &protocols, OnProxyConnectResponse: checkProxy,
		},
	}
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return &Error{Cause: Redirect, what: "too many redirects"}
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return &Error{Cause: Redirect, what: "it redirects from https to " + req.URL.Scheme}
	}
	return nil
}

// checkProxy returns a proxy's refusal with its status, which the transport only has as text.
func checkProxy(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	e := statusError(resp.StatusCode)
	e.what = "the proxy " + proxy.Host + " refuses the connection: " + e.what
	return e
}
