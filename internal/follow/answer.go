package follow

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds what is read of an answer, in bytes; a bundle has a few kilobytes.
const maxBody = 1 << 20

// strangeError is an answer that no provider gives: something else has answered.
type strangeError struct{ host, what string }

func (e *strangeError) Error() string {
	return "cannot use the answer of " + e.host + ": " + e.what
}

// readJSON reads the body of an answer that is to be JSON. It reads no more than maxBody bytes.
func readJSON(resp *http.Response) ([]byte, error) {
	host := resp.Request.URL.Host
	strange := func(format string, args ...any) error {
		return &strangeError{host, fmt.Sprintf(format, args...)}
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	// A blob's content has the type that it was stored with.
	isJSON := kind == "application/json" || kind == "application/octet-stream" ||
		strings.HasSuffix(kind, "+json")
	if !isJSON {
		return nil, strange("it is %q and not JSON; a sign-in page or a proxy of the network may have "+
			"answered in its place", shorten(kind))
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, strange("it is encoded as %q, which was not asked for", shorten(coding))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil { // a server that sees us give up may still end what it was writing
		err = resp.Request.Context().Err()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer of %s: %w", host, withoutURL(err))
	}
	if len(body) > maxBody {
		return nil, strange("it is larger than 1 MiB")
	}
	return body, nil
}

// finish lets a connection be used again, if little is left of the answer.
func finish(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // what is not read ends with the connection
	resp.Body.Close()
}

// withoutURL is an error of net/http without the URL that it quotes.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// redirect describes where an answer leads, without what may be secret.
func redirect(resp *http.Response) string {
	to, err := resp.Location()
	if err != nil {
		return "it redirects"
	}
	return fmt.Sprintf("it redirects to %s://%s, and no redirect is followed", to.Scheme, to.Host)
}

// retryAfter is for how long a server asks to be left alone; 0 when it does not (RFC 9110, 10.2.3).
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, 1<<20))*time.Second, maxPause)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxPause)
	}
	return 0
}

// maxPause is the longest pause between two requests.
const maxPause = 5 * time.Minute

// clockSkew tells how far the clock of this machine is from the server's, if that is much.
func clockSkew(h http.Header, now time.Time) string {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return ""
	}
	if off := now.Sub(at).Abs().Round(time.Second); off > 5*time.Minute {
		return fmt.Sprintf("; the clock of this machine is %s away from that of the server", off)
	}
	return ""
}

func shorten(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
