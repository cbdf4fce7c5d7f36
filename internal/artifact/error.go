package artifact

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/Azure/AKSFlexNode/internal/regular"
)

// Cause says what kind of thing went wrong, for whoever diagnoses a node.
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
	Digest        Cause = "digest mismatch"
	Archive       Cause = "bad archive"
	TooLarge      Cause = "too large"
	DiskFull      Cause = "disk full"
	ReadOnly      Cause = "read-only"
	Disk          Cause = "disk"
)

// Error is one failed attempt to get one artifact from one place. It ends with what to do next.
type Error struct {
	// Name and Version tell the artifact.
	Name    Name
	Version string
	// URL is where it was to come from, without credentials; a path for a directory.
	URL   string
	Cause Cause
	// Err is the underlying error, nil where the cause says it all.
	Err  error
	what string
	// mixed marks a wrong digest over bytes from several places, for which none of them can be
	// blamed.
	mixed bool
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot get %s %s from %s: %s", e.Name, e.Version, e.URL, e.reason())
}

// Unwrap gives the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// reason is what went wrong and what to do, without saying with what.
func (e *Error) reason() string {
	what := e.what
	switch {
	case what == "" && e.Err != nil:
		what = e.Err.Error()
	case what == "":
		what = string(e.Cause)
	}
	if advice := e.Advice(); advice != "" {
		return what + "; " + advice
	}
	return what
}

// Advice says what the owner of the machine can do, or "".
func (e *Error) Advice() string {
	switch e.Cause {
	case NotFound:
		return "check the version, or whether the mirror has this file"
	case Forbidden:
		return "check that this machine may read from there"
	case ProxyAuth:
		return "put the proxy's user and password into proxy.https"
	case CaptivePortal:
		return "a login page or filter answers in its place: log in to the network, or set " +
			"artifacts.mirror or proxy"
	case DNS:
		return "check the machine's DNS servers (resolvectl status)"
	case Refused, Unreachable, Stalled, Cut:
		return "check network and firewall, or set artifacts.mirror or proxy"
	case Overloaded:
		return "try again later, or add a mirror to artifacts.mirrors"
	case TLS:
		return "check the machine's clock and, behind an inspecting proxy, that its CA is in " +
			"the system's trust store"
	case Redirect:
		return "set artifacts.mirror to a server that has the file itself"
	case Digest:
		return "the file is not the one that was released: for a private build set its digest " +
			"in artifacts.overrides, else clear the mirror's or proxy's cache"
	case DiskFull:
		return "free some space and run the command again: it goes on where it stopped"
	case ReadOnly:
		return "make the file system writable and run the command again"
	}
	return ""
}

// Failure is the end of an artifact: the last error of each place that was asked.
type Failure struct {
	Name    Name
	Version string
	Last    []*Error
}

func (f *Failure) Error() string {
	if len(f.Last) == 1 {
		return f.Last[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cannot get %s %s from any of %d places:", f.Name, f.Version, len(f.Last))
	for _, e := range f.Last {
		fmt.Fprintf(&b, "\n  %s: %s", e.URL, e.reason())
	}
	return b.String()
}

// Unwrap gives the errors one by one, so that errors.As finds an *Error.
func (f *Failure) Unwrap() []error {
	list := make([]error, len(f.Last))
	for i, e := range f.Last {
		list[i] = e
	}
	return list
}

// Local reports whether the fault is this machine's own, which no other place can cure.
func (e *Error) Local() bool {
	return e.Cause == DiskFull || e.Cause == ReadOnly || e.Cause == Disk
}

// strikes is how often a place may fail in this way before it is given up.
func (e *Error) strikes(tries int) int {
	switch e.Cause {
	case Overloaded, Cut, Stalled:
		return tries
	case DNS, Refused, Unreachable:
		// Somebody without a network shall hear of it in seconds.
		return min(6, tries)
	case CaptivePortal:
		return min(3, tries)
	case Digest:
		return min(2, tries)
	}
	return 1
}

func statusError(status int) *Error {
	e := &Error{Cause: Status, what: fmt.Sprintf("HTTP status %d %s", status,
		http.StatusText(status))}
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		e.Cause, e.what = NotFound, fmt.Sprintf("there is no such file (HTTP %d)", status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Cause = Forbidden
	case status == http.StatusProxyAuthRequired:
		e.Cause = ProxyAuth
	case status == http.StatusNetworkAuthenticationRequired:
		e.Cause = CaptivePortal
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
		status >= 500:
		e.Cause = Overloaded
	}
	return e
}

// diskError classifies a failed operation on this machine's own files.
func diskError(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	e := &Error{Cause: Disk, Err: err}
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		e.Cause = DiskFull
	case errors.Is(err, syscall.EROFS):
		e.Cause = ReadOnly
	}
	return e
}

// netError classifies what a request or the reading of its body returned. It drops *url.Error,
// whose text repeats the URL with the signature that a redirect may have put into it.
func netError(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	e := &Error{Cause: Unreachable, Err: err}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		e.Cause, e.what = DNS, fmt.Sprintf("the name %s does not resolve", dns.Name)
	case isTLS(err):
		e.Cause = TLS
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Cause, e.what = Refused, "nothing accepts connections there"
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		e.Cause, e.what = Cut, "the connection was cut"
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		e.what = "no answer in time"
	}
	return e
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

func isTLS(err error) bool {
	var (
		verify  *tls.CertificateVerificationError
		header  tls.RecordHeaderError
		alert   tls.AlertError
		ca      x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &header) || errors.As(err, &alert) ||
		errors.As(err, &ca) || errors.As(err, &host) || errors.As(err, &invalid) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

// fileError classifies the failure to open a file of Source.Directory.
func fileError(err error) *Error {
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Cause: NotFound, what: "there is no such file in artifacts.directory"}
	}
	if errors.Is(err, regular.ErrOther) {
		return &Error{Cause: NotFound, what: regular.ErrOther.Error()}
	}
	return &Error{Cause: Status, Err: err}
}
