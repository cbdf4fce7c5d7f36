// Package mirror serves programs built in the lab as the upstream projects publish them: same
// paths, same archives, with checksums, ranges and zstd variants, as slow and faulty as a test
// needs. It does not build anything and does not listen: flexlab serves Mirror over TLS for the
// machines, and Control on loopback for tests and users.
package mirror

import (
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Mirror is the http.Handler that serves a catalog.
type Mirror struct {
	catalog atomic.Pointer[Catalog]
	state   atomic.Pointer[state]
	mu      sync.Mutex
	counts  map[string]Count
}

// Count holds the counts for a file.
type Count struct {
	// Requests counts all of them, Ranges the range requests.
	Requests int `json:"requests"`
	Ranges   int `json:"ranges"`
	// Bytes are the sent bytes of bodies.
	Bytes int64 `json:"bytes"`
}

// state holds the current knobs; each change replaces it.
type state struct {
	knobs   Knobs
	limiter *rate.Limiter
	// replaced is closed when the state is replaced.
	replaced chan struct{}
	mu       sync.Mutex
	used     []int
}

// New returns a mirror of a catalog, with all knobs at zero.
func New(c Catalog) *Mirror {
	m := &Mirror{counts: map[string]Count{}}
	m.catalog.Store(&c)
	m.state.Store(&state{replaced: make(chan struct{})})
	return m
}

// Replace changes the catalog for later requests.
func (m *Mirror) Replace(c Catalog) { m.catalog.Store(&c) }

// Catalog returns the current catalog.
func (m *Mirror) Catalog() Catalog { return *m.catalog.Load() }

// Set changes the knobs: the speed at once, faults from the next request on, with new counts.
// Stalled connections are cut.
func (m *Mirror) Set(k Knobs) error {
	if err := k.Validate(); err != nil {
		return err
	}
	k.Faults = slices.Clone(k.Faults)
	next := &state{
		knobs: k, limiter: newLimiter(k.BytesPerSecond), replaced: make(chan struct{}),
		used: make([]int, len(k.Faults)),
	}
	close(m.state.Swap(next).replaced)
	return nil
}

// Knobs returns the current knobs.
func (m *Mirror) Knobs() Knobs { return m.state.Load().knobs }

// Counts returns the counts since the start or the last Reset, by URL path.
func (m *Mirror) Counts() map[string]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.counts)
}

// Reset sets all counts to zero.
func (m *Mirror) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.counts)
}

// ServeHTTP serves GET and HEAD for the files of the catalog.
func (m *Mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are served", http.StatusMethodNotAllowed)
		return
	}
	m.countRequest(r)
	now := m.state.Load()
	fault := now.take(r)
	switch fault.Kind {
	case Status:
		code := fault.Status
		if code == 0 {
			code = http.StatusInternalServerError
		}
		http.Error(w, "the mirror was told to answer "+strconv.Itoa(code), code)
		return
	case HTML:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<!DOCTYPE html>\n<html><head><title>Welcome</title></head>" +
			"<body><h1>Sign in to this network</h1></body></html>\n"))
		return
	case NoRange:
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	m.serve(&response{
		ResponseWriter: w, ctx: r.Context(), mirror: m, path: r.URL.Path, fault: fault,
		replaced: now.replaced,
		drip:     newLimiter(fault.BytesPerSecond),
	}, r)
}

func (m *Mirror) serve(w http.ResponseWriter, r *http.Request) {
	file, ok := m.Catalog().Files[r.URL.Path]
	if !ok {
		http.Error(w, "the mirror does not have this file", http.StatusNotFound)
		return
	}
	f, err := os.Open(file.Local)
	if err != nil {
		http.Error(w, "the mirror cannot read this file", http.StatusInternalServerError)
		return
	}
	defer f.Close()
	w.Header().Set("ETag", `"`+file.SHA256+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
}

// take returns the fault that applies to a request, or the zero Fault, and counts it.
func (s *state) take(r *http.Request) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.knobs.Faults {
		meant := f.hits(r.Method) && f.from(r.RemoteAddr) && f.matches(r.URL.Path)
		if meant && (f.Times == 0 || s.used[i] < f.Times) {
			s.used[i]++
			return f
		}
	}
	return Fault{}
}

func (m *Mirror) limiter() *rate.Limiter { return m.state.Load().limiter }

func (m *Mirror) countRequest(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[r.URL.Path]
	c.Requests++
	if r.Header.Get("Range") != "" {
		c.Ranges++
	}
	m.counts[r.URL.Path] = c
}

func (m *Mirror) countBytes(path string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[path]
	c.Bytes += int64(n)
	m.counts[path] = c
}
