// Package rptest has helpers for the tests of several of the provider's packages: a clock, a log,
// requests, keys, and comparisons. Except for package seal it imports none of the packages under
// test, so that each may use it.
package rptest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/signing/rootkey"
)

// Values that the worlds of tests share.
const (
	Subscription = "11111111-2222-3333-4444-555555555555"
	Tenant       = "99999999-0000-0000-0000-000000000000"
	PublicURL    = "https://provider.example"
	ClusterID    = "/subscriptions/" + Subscription + "/resourceGroups/Edge/providers/" +
		"Microsoft.ContainerService/managedClusters/Factory"
	ClusterKey = Subscription + "/edge/factory"
)

// Ring returns a ring of one key, which a root key certifies.
func Ring() seal.Ring {
	now := NewClock().Now()
	root, err := rootkey.NewRoot(now)
	if err != nil {
		panic(err)
	}
	ring, err := seal.NewRing(root, now)
	if err != nil {
		panic(err)
	}
	return ring
}

// Clock stands still until Pass or Set.
type Clock struct{ nanos atomic.Int64 }

// NewClock returns a clock at noon of 2026-05-01.
func NewClock() *Clock {
	c := &Clock{}
	c.Set(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	return c
}

// Now returns the time.
func (c *Clock) Now() time.Time { return time.Unix(0, c.nanos.Load()) }

// Pass advances the time.
func (c *Clock) Pass(d time.Duration) { c.nanos.Add(int64(d)) }

// Set sets the time.
func (c *Clock) Set(at time.Time) { c.nanos.Store(at.UnixNano()) }

// Log holds a log in memory.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns everything that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Has fails the test if a text lacks one of some words.
func Has(t testing.TB, what, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s lacks %q: %s", what, word, text)
		}
	}
}

// Shows fails the test unless values print as wanted, with spaces between them.
func Shows(t testing.TB, what, want string, values ...any) {
	t.Helper()
	if got := strings.TrimSuffix(fmt.Sprintln(values...), "\n"); got != want {
		t.Errorf("%s is %s, want %s", what, got, want)
	}
}

// Request returns a request to a path of the provider; a header is given as "Name: value".
func Request(method, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, PublicURL+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return r
}
