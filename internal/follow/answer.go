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

const maxBody = 1 << 20 // max bytes read of an answer; a bundle has a few kilobytes

// NewClient returns an HTTP client for the provider, with a proxy or nil, trusting roots or, if
// nil, the system's. It follows no redirects, requests no compression, and keeps one connection.
func NewClient(proxy func(*http.Request) (*url.URL, error), roots *x509.CertPool) *http.Client {
	return newClient(proxy, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
}

func newClient(proxy func(*http.Request) (*url.URL, error), trust *tls.Config) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  proxy,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:        trust,
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  90 * time.Second, // longer than a long poll
			IdleConnTimeout:        5 * time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
			// Polls share one connection: if its path dies silently, it must end before TCP gives it up,
			// after a quarter of an hour.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second,
				PingTimeout: 15 * time.Second},
			MaxConnsPerHost: 2,
		},
	}
}

// reply is the answer of a server. Its body has been read if it is JSON.
type reply struct {
	*http.Response
	json []byte
	err  error // why there is no JSON
}

// ask makes a request and reads the answer, all within the deadline of its context.
func ask(client *http.Client, req *http.Request) (*reply, error) {
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	r := &reply{Response: resp}
	r.json, r.err = r.read()
	// A connection can be reused if little is left of the answer; else it is closed.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	return r, nil
}

func (r *reply) kind() string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return shorten(kind)
}

// strange returns an error for an answer that no provider gives: something else has answered.
func (r *reply) strange(format string, args ...any) error {
	said := fmt.Sprintf(format, args...)
	return fmt.Errorf("cannot use the answer of %s: %s", r.Request.URL.Host, said)
}

// read reads the body of an answer, which must be JSON, up to maxBody bytes.
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
	if err == nil { // the server may notice our giving up before its answer ends
		err = r.Request.Context().Err()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer of %s: %w", r.Request.URL.Host, withoutURL(err))
	}
	if len(body) > maxBody {
		return nil, r.strange("it is larger than 1 MiB")
	}
	return body, nil
}

// decode decodes the JSON of an answer; name describes it in errors.
func (r *reply) decode(to any, name string) error {
	if r.err == nil && json.Unmarshal(r.json, to) != nil {
		return r.strange("it is not %s", name)
	}
	return r.err
}

// problem is the error in an answer, as Resource Manager writes it.
type problem struct {
	Code, Message  string
	AdditionalInfo []struct {
		Type string
		Info json.RawMessage
	}
}

// problem returns the error in an answer; zero for none.
func (r *reply) problem() problem {
	var answer struct{ Error problem }
	if r.StatusCode < 400 || json.Unmarshal(r.json, &answer) != nil {
		return problem{}
	}
	return answer.Error
}

// withoutURL removes the URL that net/http quotes in its errors.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// redirect returns an error with the target of a redirect, without its possibly secret parts.
func (r *reply) redirect() error {
	to, err := r.Location()
	if err != nil {
		return r.strange("it redirects")
	}
	return r.strange("it redirects to %s://%s, and redirects are not followed", to.Scheme, to.Host)
}

const maxPause = 5 * time.Minute // max pause between two requests

// retryAfter returns the pause that the server requests; 0 if none (RFC 9110, 10.2.3).
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

// clockSkew describes the difference between this machine's clock and the server's, if it is large.
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

func shorten(text string) string { return untrusted.Cut(untrusted.Text(text).String(), 300) }
