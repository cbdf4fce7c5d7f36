package follow

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

const maxBody = 1 << 20 // bounds what is read of an answer, in bytes; a bundle has a few kilobytes

// NewClient makes the HTTP client for the provider, over a proxy or nil, trusting roots or, for
// nil, the system's. It follows no redirect, asks for nothing compressed, and keeps one connection.
func NewClient(proxy func(*http.Request) (*url.URL, error), roots *x509.CertPool) *http.Client {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  proxy,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  90 * time.Second, // longer than a long poll
			IdleConnTimeout:        5 * time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
			// Polls share one connection: one whose path has died without a word must end before
			// TCP gives it up, after a quarter of an hour.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second,
				PingTimeout: 15 * time.Second},
			MaxConnsPerHost: 2,
		},
	}
}

// reply is the answer of a server. Its body was read where it is JSON.
type reply struct {
	*http.Response
	json []byte
	err  error // why there is no JSON
}

// ask makes a request and reads the answer, all within the time of its context.
func ask(client *http.Client, req *http.Request) (*reply, error) {
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	r := &reply{Response: resp}
	r.json, r.err = r.read()
	// A connection can be used again if little is left of the answer; else it ends.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	return r, nil
}

func (r *reply) host() string { return r.Request.URL.Host }

func (r *reply) kind() string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return shorten(kind)
}

// strange is about an answer that no provider gives: something else has answered.
func (r *reply) strange(format string, args ...any) error {
	return fmt.Errorf("cannot use the answer of %s: %s", r.host(), fmt.Sprintf(format, args...))
}

// read reads the body of an answer that is to be JSON, no more than maxBody bytes of it.
func (r *reply) read() ([]byte, error) {
	kind := r.kind()
	// A blob's content has the type that it was stored with.
	isJSON := kind == "application/json" || kind == "application/octet-stream" ||
		strings.HasSuffix(kind, "+json")
	if !isJSON {
		return nil, r.strange("it is %q and not JSON; a sign-in page or a proxy of the network may "+
			"have answered instead", kind)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, r.strange("it is encoded as %q, which was not requested", shorten(coding))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil { // a server that sees us give up may still end what it was writing
		err = r.Request.Context().Err()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer of %s: %w", r.host(), withoutURL(err))
	}
	if len(body) > maxBody {
		return nil, r.strange("it is larger than 1 MiB")
	}
	return body, nil
}

// decode reads the JSON of an answer, which is to be what is named.
func (r *reply) decode(to any, name string) error {
	if r.err == nil && json.Unmarshal(r.json, to) != nil {
		return r.strange("it is not %s", name)
	}
	return r.err
}

// withoutURL is an error of net/http without the URL that it quotes.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// redirect describes where an answer leads, without what may be secret.
func (r *reply) redirect() error {
	to, err := r.Location()
	if err != nil {
		return r.strange("it redirects")
	}
	return r.strange("it redirects to %s://%s, and redirects are not followed", to.Scheme, to.Host)
}

const maxPause = 5 * time.Minute // the longest pause between two requests

// retryAfter is for how long a server asks to be left alone; 0 when it does not (RFC 9110, 10.2.3).
func (r *reply) retryAfter() time.Duration {
	pause := r.seconds("Retry-After")
	if at, err := http.ParseTime(r.Header.Get("Retry-After")); err == nil {
		pause = max(time.Until(at), 0)
	}
	return min(pause, maxPause)
}

func (r *reply) seconds(name string) time.Duration {
	n, err := strconv.Atoi(r.Header.Get(name))
	if err != nil {
		return 0
	}
	return time.Duration(min(max(n, 0), 1<<20)) * time.Second
}

// clockSkew tells how far the clock of this machine is from the server's, if that is much.
func (r *reply) clockSkew() string {
	at, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return ""
	}
	if off := time.Since(at).Abs().Round(time.Second); off > 5*time.Minute {
		return fmt.Sprintf("; the clock of this machine is %s away from that of the server", off)
	}
	return ""
}

func shorten(text string) string {
	const most = 300
	text = untrusted.Text(text).String()
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
