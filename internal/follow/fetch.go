// Package follow is the agent's client of the resource provider: the configuration URL that a
// machine is given, the polls of its flexNodeConfig, and the reports. It only exchanges and
// interprets messages; package agent/service decides what they mean for the machine. It stores
// nothing.
package follow

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// URL is a configuration URL. It lets its holder join as its node, so it is a secret.
type URL struct {
	config.Secret
	Host string // the server in the URL, with its port if it has one
	ends string // the expiry, as given in the URL
}

// ParseURL parses a configuration URL. Its errors do not quote it.
func ParseURL(text string) (URL, error) {
	const cannot = "cannot use the configuration URL: "
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return URL{}, errors.New(cannot + "it is no URL")
	case u.Scheme != "https":
		return URL{}, errors.New(cannot + "it must begin with https://")
	case u.Hostname() == "" || u.User != nil:
		return URL{}, errors.New(cannot + "it must name a host, and no user")
	}
	u.Fragment = ""
	return URL{config.Secret(u.String()), u.Host, u.Query().Get("se")}, nil
}

// Digest returns the hexadecimal SHA-256 of the URL, for comparing URLs.
func (u URL) Digest() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(u.Reveal()))) }

// DeadError reports that a configuration URL no longer works.
type DeadError struct{ Host, Why string }

func (e *DeadError) Error() string {
	return "cannot fetch the configuration from " + e.Host + ": " + e.Why +
		"; ask for a new URL with regenerateToken"
}

// Fetcher fetches the bundle of a configuration URL.
type Fetcher struct {
	Client  *http.Client
	For     time.Duration                        // limits the retries of temporary failures
	Waiting func(err error, pause time.Duration) // called before each of them
}

const (
	tryLimit   = 30 * time.Second // one request
	firstPause = time.Second
	fetchPause = 30 * time.Second
)

// Fetch returns the bundle of a URL, at most 1 MiB. It retries temporary failures; a dead URL is a
// *DeadError at once, and a server without the pinned certificate a *PinError.
func (f Fetcher) Fetch(ctx context.Context, u URL) ([]byte, error) {
	deadline := time.Now().Add(f.For)
	for pauses := (wait.Backoff{Base: firstPause, Max: fetchPause}); ; {
		bundle, pause, err := f.once(ctx, u)
		if err == nil {
			return bundle, nil
		}
		_, dead := errors.AsType[*DeadError](err)
		if _, other := errors.AsType[*PinError](err); dead || other || ctx.Err() != nil {
			return nil, err
		}
		pause = max(pause, pauses.Next())
		if time.Now().Add(pause).After(deadline) {
			return nil, err
		}
		f.Waiting(err, pause)
		if !wait.Sleep(ctx, pause) {
			return nil, err
		}
	}
}

// once makes one request. pause is the pause that the server requests.
func (f Fetcher) once(ctx context.Context, u URL) (bundle []byte, pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, u.Reveal(), nil) // it was parsed
	resp, err := ask(f.Client, req)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot fetch the configuration from %s: %w", u.Host, err)
	}
	switch status := resp.StatusCode; {
	case status == http.StatusOK:
		return resp.json, 0, resp.err
	case status >= 300 && status < 400:
		return nil, 0, resp.redirect()
	case resp.dead():
		return nil, 0, &DeadError{u.Host, u.why(status) + resp.clockSkew()}
	}
	return nil, resp.retryAfter(), fmt.Errorf("cannot fetch the configuration from %s: "+
		"it answers %s, with %q%s", u.Host, resp.Status, resp.kind(), resp.clockSkew())
}

// dead reports whether a URL no longer works, judging by JSON of a provider or XML of a blob store.
func (r *reply) dead() bool {
	kind, status := r.kind(), r.StatusCode
	return (r.err == nil || kind == "application/xml" || kind == "text/xml") &&
		status >= 400 && status < 500 && status != http.StatusRequestTimeout &&
		status != http.StatusTooManyRequests && status != http.StatusTooEarly
}

// why explains why a URL is dead, from its parameter se (of a shared access signature).
func (u URL) why(status int) string {
	at, err := time.Parse(time.RFC3339, u.ends)
	switch {
	case status != http.StatusForbidden && status != http.StatusNotFound && status != http.StatusGone:
		return fmt.Sprintf("it answers %d %s", status, http.StatusText(status))
	case err == nil && time.Now().After(at):
		return "the URL has expired at " + at.UTC().Format(time.DateTime) + " UTC"
	}
	return "a machine has already joined with the URL, or it was revoked or replaced"
}
