package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// machine is a machine whose wall clock is off, and an issuer with the right time. Its tokens are
// good for an hour; local makes the SDK add that to the machine's clock.
type machine struct {
	start  time.Time     // the right time of the boot
	up     time.Duration // since then
	off    time.Duration // by how much the wall clock is ahead
	boot   string
	asked  int
	ends   time.Time // the right time at which the last token ends
	local  bool
	opaque bool // the tokens are no JWTs
	down   bool
}

func (m *machine) right() time.Time { return m.start.Add(m.up) }

func (m *machine) wall() time.Time { return m.right().Add(m.off) }

func (m *machine) GetToken(context.Context, policy.TokenRequestOptions) (
	azcore.AccessToken, error,
) {
	if m.down {
		return azcore.AccessToken{}, errors.New("down")
	}
	m.asked++
	m.ends = m.right().Add(time.Hour)
	value, ends := jwt(m.right(), m.ends), m.ends
	if m.opaque {
		value = fmt.Sprint("opaque", m.asked)
	}
	if m.local {
		ends = m.wall().Add(time.Hour)
	}
	return azcore.AccessToken{Token: value, ExpiresOn: ends}, nil
}

func jwt(issued, ends time.Time) string {
	body := fmt.Sprintf(`{"iat":%d,"exp":%d}`, issued.Unix(), ends.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(body)) + ".c2ln"
}

func (m *machine) cache(dir string) Cache {
	return Cache{
		Dir: dir, Key: "k", Now: m.wall,
		Boot:       func() (string, time.Duration) { return m.boot, m.up },
		Warn:       func(error) {},
		Credential: func() (Credential, error) { return m, nil },
	}
}

// A clock that is set once after the boot, while kubelet asks for a token every five minutes, never
// brings a dead token, nor many questions to the issuer.
func TestClockIsSet(t *testing.T) {
	for _, off := range []time.Duration{3 * time.Hour, 8 * time.Hour, -2 * time.Hour, 0} {
		for _, kind := range []machine{
			{}, {local: true}, {opaque: true}, {opaque: true, local: true},
		} {
			name := fmt.Sprintf("ahead by %s, local %t, opaque %t", off, kind.local, kind.opaque)
			t.Run(name, func(t *testing.T) {
				m := &kind
				m.start, m.boot, m.off = time.Unix(1.8e9, 0), "boot", off
				c := m.cache(t.TempDir())
				if _, err := c.Token(t.Context()); err != nil {
					t.Fatal(err)
				}
				m.off = 0
				for m.up += 5 * time.Second; m.up < 12*time.Hour; m.up += 5 * time.Minute {
					if _, err := c.Token(t.Context()); err != nil {
						t.Fatal(err)
					}
					if left := m.ends.Sub(m.right()); left < margin {
						t.Fatalf("after %s: a token that ended %s ago", m.up, -left)
					}
				}
				if m.asked > 20 {
					t.Errorf("the issuer was asked %d times in 12 hours", m.asked)
				}
			})
		}
	}
}

// A token is as good for as long as it says, also where the wall clock stands still.
func TestAgeInBootTime(t *testing.T) {
	m := &machine{start: time.Unix(1.8e9, 0), boot: "boot", opaque: true}
	c := m.cache(t.TempDir())
	if _, err := c.Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.up, m.off, m.down = 59*time.Minute, -58*time.Minute, true
	if _, err := c.Token(t.Context()); err != nil {
		t.Errorf("after 59 minutes: %v", err)
	}
	m.up, m.off = time.Hour, -59*time.Minute
	if token, err := c.Token(t.Context()); err == nil {
		t.Errorf("after an hour: %+v", token)
	}
}

// A token of another boot, whose age is unknown, is not used.
func TestAnotherBoot(t *testing.T) {
	m := &machine{start: time.Unix(1.8e9, 0), boot: "one"}
	c := m.cache(t.TempDir())
	for _, boot := range []string{"one", "one", "two"} {
		m.boot = boot
		if _, err := c.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if m.asked != 2 {
		t.Errorf("the issuer was asked %d times, want 2", m.asked)
	}
}

// The lifetime is what the token says, where the SDK says more.
func TestLifetimeIsOfTheClaims(t *testing.T) {
	now := time.Unix(1.8e9, 0)
	for value, want := range map[string]time.Duration{
		jwt(now.Add(-time.Hour), now):                   time.Hour,
		jwt(now, now.Add(100*time.Hour)):                9 * time.Hour,
		jwt(now, now.Add(-time.Hour)):                   9 * time.Hour,
		"opaque":                                        9 * time.Hour,
		"a.b.c":                                         9 * time.Hour,
		strings.Repeat("e30.", 2) + "c2ln":              9 * time.Hour,
		jwt(now, now.Add(time.Hour)) + ".x":             9 * time.Hour,
		jwt(now.Add(5*time.Hour), now.Add(6*time.Hour)): time.Hour,
	} {
		issuer := answering{azcore.AccessToken{Token: value, ExpiresOn: now.Add(9 * time.Hour)}}
		got, err := ask(t.Context(), func() (Credential, error) { return issuer, nil }, "", Need{},
			func() time.Time { return now })
		if err != nil || got.Expires.Sub(got.Issued) != want {
			t.Errorf("%s: good for %s, want %s; %v", value, got.Expires.Sub(got.Issued), want, err)
		}
	}
}

// answering is an issuer with one answer.
type answering struct{ token azcore.AccessToken }

func (a answering) GetToken(context.Context, policy.TokenRequestOptions) (
	azcore.AccessToken, error,
) {
	return a.token, nil
}

func TestUptime(t *testing.T) {
	id, first := Uptime()
	again, later := Uptime()
	if id == "" || id != again || first <= 0 || later < first {
		t.Errorf("%q since %s, then %q since %s", id, first, again, later)
	}
}
