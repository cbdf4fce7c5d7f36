// Package follow is the resource provider as the agent sees it: the configuration URL that a
// machine is given, the polls of its flexNodeConfig, and the reports. It speaks and understands;
// what follows for the machine is decided by package agent. It keeps nothing on disk.
package follow

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// URL is a configuration URL. Whoever has it can join as its node, so that it has no text: it
// prints as "[redacted]".
type URL struct{ url *url.URL }

const redacted = "[redacted]"

// ParseURL reads a configuration URL. Its errors do not quote it.
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
	return URL{u}, nil
}

// Host is the server that a URL names, with its port if it has one.
func (u URL) Host() string { return u.url.Host }

// Digest is the SHA-256 of the URL, in hexadecimal: it reports whether another one is the same.
func (u URL) Digest() string {
	sum := sha256.Sum256([]byte(u.url.String()))
	return hex.EncodeToString(sum[:])
}

// expires is when the URL says that it ends (the parameter se of a shared access signature); zero
// when it does not say.
func (u URL) expires() time.Time {
	at, err := time.Parse(time.RFC3339, u.url.Query().Get("se"))
	if err != nil {
		return time.Time{}
	}
	return at
}

// A URL is a secret for fmt, for logs and for JSON.
func (URL) String() string { return redacted }

func (URL) GoString() string { return redacted }

func (URL) LogValue() slog.Value { return slog.StringValue(redacted) }

func (URL) MarshalText() ([]byte, error) { return []byte(redacted), nil }
