package stories

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// wrongAnswer is an answer of another server, or a wrong one of the provider.
type wrongAnswer struct {
	name string
	// polls and refreshes answer in place of the provider; nil leaves that to it.
	polls, refreshes func(*http.Request) (*http.Response, error)
	// offer changes the configuration on offer; nil offers a version that would work.
	offer func(*change.Delivery)
	// lasts is the time for which it is sent; default ten minutes.
	lasts time.Duration
	// says is a text in the log about it; "" for none.
	says string
}

// instead returns an answer without a network.
func instead(
	status int, kind, body string, header ...string,
) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {kind}}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{
			StatusCode: status, Header: h, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
}

// endless is a body without an end; slow is one that sends nothing.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

type slow struct{ ctx context.Context }

func (s slow) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func body(of func(*http.Request) io.Reader) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := instead(200, "application/json", "")(r)
		resp.Body = io.NopCloser(of(r))
		return resp, err
	}
}

const (
	bareNotFound = `{"error":{"code":"ResourceNotFound","message":"not found"}}`
)

// stone returns the answer with the tombstone of a node, by an installation.
func stone(uid string, by keys) string {
	return `{"error":{"code":"ResourceNotFound","additionalInfo":[{` +
		`"type":"FlexNodeConfigTombstone","info":` + by.stone(uid) + `}]}}`
}

// untrusted fails like TLS with a certificate of an unknown authority.
func untrusted(*http.Request) (*http.Response, error) {
	return nil, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
}

// oneStone answers with a tombstone of the node, and then without.
func oneStone() func(*http.Request) (*http.Response, error) {
	asked := 0
	return func(r *http.Request) (*http.Response, error) {
		if asked++; asked%2 == 1 {
			return instead(404, "application/json", stone("u", installation()))(r)
		}
		return instead(404, "application/json", bareNotFound)(r)
	}
}

// bomb returns 100 MB of blanks, compressed.
func bomb() string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.CopyN(z, endless{}, 100<<20) // a buffer takes everything
	_ = z.Close()
	return packed.String()
}

// edited returns a change of a text in a bundle.
func edited(from, to string) func(*change.Delivery) {
	return func(d *change.Delivery) {
		d.Bundle = []byte(strings.Replace(string(d.Bundle), from, to, 1))
	}
}

func wrongAnswers() []wrongAnswer {
	const long = 7 * 24 * time.Hour // in full in the tests of the Follower alone
	json := func(status int, body string) func(*http.Request) (*http.Response, error) {
		return instead(status, "application/json", body)
	}
	page := instead(200, "text/html", "<html>Please sign in</html>")
	away := instead(302, "text/html", "", "Location", "http://elsewhere.example/")
	packed := instead(200, "application/json", bomb(), "Content-Encoding", "gzip")
	huge := body(func(*http.Request) io.Reader { return endless{} })
	never := body(func(r *http.Request) io.Reader { return slow{r.Context()} })
	return []wrongAnswer{
		{name: "captive portal", polls: page, says: "sign-in page"},
		{name: "captive portal for the bundle", refreshes: page, says: "sign-in page"},
		{name: "redirect to http", polls: away, says: "redirects to http://elsewhere.example"},
		{name: "redirect to http for the bundle", refreshes: away, says: "redirects to http://"},
		{name: "wrong certificate", polls: untrusted, says: "unknown authority"},
		{name: "wrong certificate for the bundle", refreshes: untrusted, says: "unknown authority"},
		{name: "100 MB", polls: huge, says: "larger than 1 MiB"},
		{name: "100 MB for the bundle", refreshes: huge, says: "larger than 1 MiB"},
		{name: "gzip bomb", polls: packed, says: "encoded as"},
		{name: "gzip bomb for the bundle", refreshes: packed, says: "encoded as"},
		{name: "endless body", polls: never, says: "cannot read the answer"},
		{name: "endless body for the bundle", refreshes: never, says: "cannot read the answer"},
		{name: "404 without a tombstone", polls: json(404, bareNotFound), lasts: long,
			says: "ResourceNotFound"},
		{name: "one tombstone only", polls: oneStone(), lasts: long,
			says: "seems to be deleted; checking again"},
		{name: "tombstone of another uid", polls: json(404, stone("v", installation())),
			lasts: long, says: "404"},
		{name: "tombstone of another installation", lasts: long, says: "cannot trust",
			polls: json(404, stone("u", newKeys(nil)))},
		{name: "401 for a week", polls: json(401, `{"error":{"code":"InvalidToken"}}`), lasts: long,
			says: "InvalidToken"},
		{name: "403 for a week", polls: json(403, `{"error":{"code":"AuthorizationFailed"}}`),
			lasts: long, says: "AuthorizationFailed"},
		{name: "403 for the bundle", refreshes: json(403, `{"error":{"code":"AuthorizationFailed"}}`),
			lasts: long, says: "AuthorizationFailed"},
		{name: "truncated bundle", says: "is not used",
			offer: func(d *change.Delivery) { d.Bundle = d.Bundle[:len(d.Bundle)/2] }},
		{name: "bundle of a newer schema", says: "9.0",
			offer: edited(`"schemaVersion":"1.0"`, `"schemaVersion":"9.0"`)},
		{name: "bundle of another resource", says: "is not used",
			offer: edited("/flexNodeConfig/edge-1", "/flexNodeConfig/edge-2")},
		{name: "bundle of another uid", says: "another resource",
			offer: edited(`"uid":"u"`, `"uid":"v"`)},
		{name: "bundle of an earlier version", says: "goes back from version",
			offer: edited(`"configVersion":"8"`, `"configVersion":"6"`)},
		{name: "bundle of an earlier epoch", says: "goes back from epoch",
			offer: edited(`"epoch":1`, `"epoch":0`)},
	}
}

// With any wrong answer or offer of the provider, or of another server, nothing is lost: the node
// works as before and reports why it does not follow, and the next valid version is applied.
func TestFollowsThroughWrongAnswers(t *testing.T) {
	for _, c := range wrongAnswers() {
		t.Run(c.name, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.sleep(2 * time.Minute)
				kept, told := s.bundle(), len(s.log.String())
				next := s.delivery("8", monitored, readyTimeout("1m"), pods(42))
				if c.offer != nil {
					c.offer(&next)
					next.Bundle = installation().signs(t, next.Bundle)
				}
				s.provider.set(func() { s.provider.polls, s.provider.refreshes = c.polls, c.refreshes })
				s.sleep(time.Minute) // until the poll that is held back has ended
				s.provider.offers(next)
				s.rests(max(c.lasts, 10*time.Minute))
				s.healthy("110")
				if !s.registered() || s.bundle() != kept {
					t.Errorf("the Node is there: %t; the bundle is the same: %t", s.registered(),
						s.bundle() == kept)
				}
				is := s.condition("ConfigurationAccepted")
				if c.offer != nil && is.Status != health.False {
					t.Errorf("ConfigurationAccepted is %+v", is)
				}
				if log := s.log.String()[told:]; !strings.Contains(log, c.says) {
					t.Errorf("the log does not say %q:\n%s", c.says, log)
				}
				s.provider.set(func() { s.provider.polls, s.provider.refreshes = nil, nil })
				s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
				s.until(10*time.Minute, "the next version is applied", s.takes("43"))
			})
		})
	}
}

// On a full disk the former bundle stays complete; when there is room again, the new one is
// accepted.
func TestFollowsOntoAFullDisk(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		kept := s.bundle()
		s.set(func() { s.full = true })
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.rests(time.Hour)
		s.healthy("110")
		if s.bundle() != kept || !strings.Contains(s.log.String(), "no space left on device") {
			t.Errorf("the bundle is the same: %t; the log:\n%s", s.bundle() == kept, s.log.String())
		}
		s.set(func() { s.full = false })
		s.until(10*time.Minute, "the version is applied", s.takes("42"))
	})
}

// A clock that is a year off delays nothing: pauses and comparisons of versions do not use it.
func TestFollowsWithAWrongClock(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		s.provider.set(func() { s.provider.ahead = 365 * 24 * time.Hour })
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(time.Minute, "the version is applied", s.takes("42"))
		s.provider.set(func() { s.provider.ahead = -365 * 24 * time.Hour })
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
		s.until(time.Minute, "the next version is applied", s.takes("43"))
	})
}

// Set implements change.Machine. On a full disk it writes no bundle.
func (c *costly) Set(
	ctx context.Context, change state.Change, content func(string) (io.ReadCloser, error),
) error {
	c.service.mu.Lock()
	full := c.service.full
	c.service.mu.Unlock()
	if full && change.To.Key() == state.PathKey(saved.BundleFile) {
		return syscall.ENOSPC
	}
	return c.Machine.Set(ctx, change, content)
}

// The condition names the version of a delivered configuration that no node can change to.
func TestRefusedDeliveryIsNamed(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), func(c map[string]any) {
			c["paths"] = map[string]any{"kubernetes": map[string]any{"kubeletDir": "/var/lib/other"}}
		}))
		s.until(5*time.Minute, "it is refused", func() bool {
			return s.condition("ConfigurationAccepted").Status == health.False
		})
		if c := s.condition("ConfigurationAccepted"); !strings.Contains(c.Message,
			"the configuration 8 was rejected") {
			t.Errorf("the condition is %+v", c)
		}
	})
}
