package artifact

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/Azure/AKSFlexNode/internal/regular"
)

// Cause names the kind of failure, for the diagnosis of a node.
type Cause string

// The causes of a failed download.
const (
	NotFound      Cause = "not found"
	Forbidden     Cause = "forbidden"
	Status        Cause = "unexpected status"
	Overloaded    Cause = "server error"
	ProxyAuth     Cause = "proxy authentication"
	CaptivePortal Cause = "captive portal"
	DNS           Cause = "name resolution"
	Refused       Cause = "connection refused"
	Unreachable   Cause = "unreachable"
	TLS           Cause = "tls"
	Redirect      Cause = "redirect"
	Cut           Cause = "connection cut"
	Stalled       Cause = "stalled"
	Slow          Cause = "slow"
	Digest        Cause = "digest mismatch"
	Archive       Cause = "bad archive"
	TooLarge      Cause = "too large"
	DiskFull      Cause = "disk full"
	ReadOnly      Cause = "read-only"
	Disk          Cause = "disk"
)

// Error is one failed attempt to fetch one artifact from one place. Its text ends with advice.
type Error struct {
	Name    Name
	Version string
	URL     string // the place, without credentials; a path for a directory
	Cause   Cause
	Err     error // the underlying error, nil if the cause is sufficient
	what    string
	mixed   bool  // a wrong digest over bytes from several places: none can be blamed
	rate    int64 // the bytes per second from a slow place
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot get %s %s from %s: %s", e.Name, e.Version, e.URL, e.reason())
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) reason() string {
	what := cmp.Or(e.what, string(e.Cause))
	if e.what == "" && e.Err != nil {
		what = e.Err.Error()
	}
	if advice := treatments[e.Cause].advice; advice != "" {
		return what + "; " + advice
	}
	return what
}

type treatment struct {
	tries  int    // max consecutive failures of this kind before a place is given up
	advice string // advice for the owner of the machine, or ""
}

const (
	checkNetwork = "check network and firewall, or set artifacts.mirror or proxy"
	soon         = 6 // without a network, the error should come within seconds
)

// treatments holds the causes for which a retry or the owner can help.
var treatments = map[Cause]treatment{
	NotFound:   {1, "check the version, or whether the mirror has this file"},
	Forbidden:  {1, "check that this machine may read from there"},
	Overloaded: {maxTries, "try again later, or add a mirror to artifacts.mirrors"},
	ProxyAuth:  {1, "put the proxy's user and password into proxy.https"},
	CaptivePortal: {3, "a login page or filter answered instead: log in to the network, or set " +
		"artifacts.mirror or proxy"},
	DNS:         {soon, "check the machine's DNS servers (resolvectl status)"},
	Refused:     {soon, checkNetwork},
	Unreachable: {soon, checkNetwork},
	TLS: {1, "check the machine's clock and, behind an inspecting proxy, that its CA is in " +
		"the system's trust store"},
	Redirect: {1, "set artifacts.mirror to a server that has the file itself"},
	Cut:      {maxTries, checkNetwork},
	Stalled:  {maxTries, checkNetwork},
	Slow:     {maxTries, checkNetwork},
	Digest: {2, "the file is not the released one: for a private build set its digest in " +
		"artifacts.overrides, otherwise clear the cache of the mirror or proxy"},
	DiskFull: {1, "free some space and run the command again; it continues where it stopped"},
	ReadOnly: {1, "make the file system writable and run the command again"},
}

// Failure is the final error of an artifact: the last error of each place tried, at least one.
type Failure struct{ Last []*Error }

func (f *Failure) Error() string {
	first := f.Last[0]
	if len(f.Last) == 1 {
		return first.Error()
	}
	text := fmt.Sprintf("cannot get %s %s from any of %d places:", first.Name, first.Version,
		len(f.Last))
	for _, e := range f.Last {
		text += fmt.Sprintf("\n  %s: %s", e.URL, e.reason())
	}
	return text
}

// Unwrap returns the error of the first place, so that errors.As finds an *Error.
func (f *Failure) Unwrap() error { return f.Last[0] }

// Local reports whether the fault is this machine's own, which no other place can fix.
func (e *Error) Local() bool {
	return e.Cause == DiskFull || e.Cause == ReadOnly || e.Cause == Disk
}

func statusError(status int) *Error {
	e := &Error{Cause: Status, what: fmt.Sprintf("HTTP status %d %s", status, http.StatusText(status))}
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		e.Cause, e.what = NotFound, fmt.Sprintf("file not found (HTTP %d)", status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Cause = Forbidden
	case status == http.StatusProxyAuthRequired:
		e.Cause = ProxyAuth
	case status == http.StatusNetworkAuthenticationRequired:
		e.Cause = CaptivePortal
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		e.Cause = Overloaded
	}
	return e
}

// diskError classifies the error of an operation on this machine's own files; nil remains nil.
func diskError(err error) error {
	cause := Disk
	switch _, known := errors.AsType[*Error](err); {
	case err == nil || known:
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		cause = DiskFull
	case errors.Is(err, syscall.EROFS):
		cause = ReadOnly
	}
	return &Error{Cause: cause, Err: err}
}

func isLocal(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Local()
}

// netError classifies the error of a request or of reading its body. It drops *url.Error, whose
// text repeats the URL with the signature that a redirect may have added.
func netError(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	e := &Error{Cause: Unreachable, Err: err}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	slow, isNet := errors.AsType[net.Error](err)
	switch {
	case isDNS:
		e.Cause, e.what = DNS, fmt.Sprintf("the name %s does not resolve", dns.Name)
	case isTLS(err):
		e.Cause = TLS
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Cause, e.what = Refused, "connection refused"
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		e.Cause, e.what = Cut, "the connection was cut"
	case isNet && slow.Timeout(): // also a deadline of the context
		e.what = "no answer in time"
	}
	return e
}

func isTLS(err error) bool {
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, header := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return verify || header || alert || errors.Is(err, http.ErrSchemeMismatch)
}

func fileError(err error) *Error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Cause: NotFound, what: "file not found in artifacts.directory"}
	case errors.Is(err, regular.ErrOther):
		return &Error{Cause: NotFound, what: regular.ErrOther.Error()}
	}
	return &Error{Cause: Status, Err: err}
}
