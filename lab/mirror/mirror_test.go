package mirror

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const at = "/dl.k8s.io/v9.8.7/bin/linux/amd64/kubelet"

// single returns a mirror with one file of random bytes.
func single(t *testing.T, size int) (*Mirror, []byte) {
	t.Helper()
	body := random(t, "kubelet", size)
	local := filepath.Join(t.TempDir(), "kubelet")
	if err := os.WriteFile(local, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return New(
		Catalog{
			Files: map[string]File{at: {Size: int64(size), SHA256: digest(body), Local: local}},
		},
	), body
}

// started serves a mirror over TLS, as flexlab does.
func started(t *testing.T, m *Mirror) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(m)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ask returns the response with its body, as far as received, and the error that ended it.
func ask(
	t *testing.T, s *httptest.Server, method, path string, header ...string,
) (*http.Response, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

func TestRequests(t *testing.T) {
	m, body := single(t, 200_000)
	s := started(t, m)
	etag := `"` + digest(body) + `"`
	tests := map[string]struct {
		method, path string
		header       []string
		status       int
		want         []byte
	}{
		"whole": {"GET", at, nil, 200, body},
		"head":  {"HEAD", at, nil, 200, nil},
		"range": {"GET", at, []string{"Range", "bytes=150000-"}, 206, body[150_000:]},
		"same range": {
			"GET", at, []string{"Range", "bytes=150000-", "If-Range", etag}, 206, body[150_000:],
		},
		"other range": {
			"GET", at, []string{"Range", "bytes=150000-", "If-Range", `"other"`}, 200, body,
		},
		"beyond": {
			"GET", at, []string{"Range", "bytes=200000-"}, 416,
			[]byte("invalid range: failed to overlap\n"),
		},
		"unchanged": {"GET", at, []string{"If-None-Match", etag}, 304, nil},
		"unknown": {
			"GET", "/dl.k8s.io/other", nil, 404, []byte("the mirror does not have this file\n"),
		},
		"not a reading": {"PUT", at, nil, 405, []byte("only GET and HEAD are served\n")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resp, got, err := ask(t, s, test.method, test.path, test.header...)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != test.status || !bytes.Equal(got, test.want) {
				t.Errorf(
					"status %d with %d bytes, want %d with %d", resp.StatusCode, len(got),
					test.status, len(test.want),
				)
			}
			if test.status/100 == 2 && resp.Header.Get("ETag") != etag {
				t.Errorf("ETag is %s", resp.Header.Get("ETag"))
			}
		})
	}
}

func TestFaults(t *testing.T) {
	m, body := single(t, 200_000)
	s := started(t, m)
	wrong := bytes.Clone(body)
	wrong[70_000] ^= 0xff
	tests := map[string]struct {
		fault  Fault
		header []string
		status int
		want   []byte
		cut    bool
	}{
		"cut":         {Fault{Kind: Cut, After: 100_000}, nil, 200, body[:100_000], true},
		"cut at once": {Fault{Kind: Cut}, nil, 200, nil, true},
		"cut of a range": {
			Fault{Kind: Cut, After: 10}, []string{"Range", "bytes=100-199"}, 206, body[100:110],
			true,
		},
		"short": {
			Fault{Kind: Cut, After: 100}, []string{"Range", "bytes=100-199"}, 206, body[100:200],
			false,
		},
		"corrupt": {Fault{Kind: Corrupt, After: 70_000}, nil, 200, wrong, false},
		"status": {
			Fault{Kind: Status}, nil, 500, []byte("the mirror was told to answer 500\n"), false,
		},
		"another status": {
			Fault{Kind: Status, Status: 404}, nil, 404,
			[]byte("the mirror was told to answer 404\n"), false,
		},
		"no range": {
			Fault{Kind: NoRange}, []string{"Range", "bytes=100-199"}, 200, body, false,
		},
		"another file": {Fault{Kind: Status, Path: "kubeadm*"}, nil, 200, body, false},
		"file and variant": {
			Fault{Kind: Status, Path: "kubelet*"}, nil, 500,
			[]byte("the mirror was told to answer 500\n"), false,
		},
		"whole path": {
			Fault{Kind: Status, Path: "/dl.k8s.io/*/bin/*/*/kubelet"}, nil, 500,
			[]byte("the mirror was told to answer 500\n"), false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := m.Set(Knobs{Faults: []Fault{test.fault}}); err != nil {
				t.Fatal(err)
			}
			resp, got, err := ask(t, s, "GET", at, test.header...)
			if resp.StatusCode != test.status || !bytes.Equal(got, test.want) {
				t.Errorf(
					"status %d with %d bytes, want %d with %d", resp.StatusCode, len(got),
					test.status, len(test.want),
				)
			}
			if (err != nil) != test.cut {
				t.Errorf("error is %v", err)
			}
			offered := resp.Header.Get("Accept-Ranges") == "bytes"
			if test.status/100 == 2 && offered == (test.fault.Kind == NoRange) {
				t.Errorf("Accept-Ranges is offered: %v", offered)
			}
		})
	}
}

func TestCaptivePortal(t *testing.T) {
	m, _ := single(t, 100)
	s := started(t, m)
	if err := m.Set(Knobs{Faults: []Fault{{Kind: HTML}}}); err != nil {
		t.Fatal(err)
	}
	resp, body, err := ask(t, s, "GET", at)
	if err != nil || resp.StatusCode != 200 ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") ||
		!bytes.Contains(body, []byte("<html>")) {
		t.Errorf("%s %s %q (%v)", resp.Status, resp.Header.Get("Content-Type"), body, err)
	}
}

// TestFaultsAreUsedUp also checks that a HEAD does not use up a fault of bodies, and that the next
// fault follows.
func TestFaultsAreUsedUp(t *testing.T) {
	m, body := single(t, 1000)
	s := started(t, m)
	faults := []Fault{{Kind: Cut, After: 10, Times: 2}, {Kind: NoRange, Times: 1}}
	if err := m.Set(Knobs{Faults: faults}); err != nil {
		t.Fatal(err)
	}
	var lengths []int
	for _, method := range []string{"HEAD", "GET", "GET", "GET", "GET"} {
		_, got, _ := ask(t, s, method, at, "Range", "bytes=900-")
		lengths = append(lengths, len(got))
	}
	if diff := cmp.Diff([]int{0, 10, 10, len(body), 100}, lengths); diff != "" {
		t.Error(diff)
	}
}

// TestStall reads up to the stall, then changes the knobs, which ends it.
func TestStall(t *testing.T) {
	m, body := single(t, 200_000)
	s := started(t, m)
	if err := m.Set(Knobs{Faults: []Fault{{Kind: Stall, After: 5000}}}); err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Get(s.URL + at)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 5000)
	if _, err := io.ReadFull(resp.Body, first); err != nil || !bytes.Equal(first, body[:5000]) {
		t.Fatalf("the bytes before the stall are wrong (%v)", err)
	}
	if err := m.Set(Knobs{}); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(resp.Body)
	if err == nil || len(rest) > 0 {
		t.Errorf("%d bytes came after the stall (%v)", len(rest), err)
	}
}

// TestSpeed uses a fake clock, so that only the limit takes time.
func TestSpeed(t *testing.T) {
	tests := map[string]struct {
		knobs    Knobs
		requests int
		want     time.Duration
	}{
		"alone":  {Knobs{BytesPerSecond: 100_000}, 1, 10 * time.Second},
		"shared": {Knobs{BytesPerSecond: 100_000}, 3, 30 * time.Second},
		"fast":   {Knobs{BytesPerSecond: 12_500_000}, 5, 400 * time.Millisecond},
		"drip": {
			Knobs{Faults: []Fault{{Kind: Drip, BytesPerSecond: 10_000}}}, 2, 100 * time.Second,
		},
		"unlimited": {Knobs{}, 2, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, body := single(t, 1_000_000)
			synctest.Test(t, func(t *testing.T) {
				if err := m.Set(test.knobs); err != nil {
					t.Fatal(err)
				}
				begin, done := time.Now(), make(chan []byte)
				for range test.requests {
					go func() { done <- recorded(t.Context(), m) }()
				}
				for range test.requests {
					if got := <-done; !bytes.Equal(got, body) {
						t.Errorf("%d bytes came, or wrong ones", len(got))
					}
				}
				if took := time.Since(begin); took > test.want || took < test.want*9/10 {
					t.Errorf("it took %s, want %s", took, test.want)
				}
			})
		})
	}
}

func recorded(ctx context.Context, m *Mirror) []byte {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, at, nil))
	return w.Body.Bytes()
}

func TestCounts(t *testing.T) {
	m, _ := single(t, 1000)
	s := started(t, m)
	for _, header := range [][]string{nil, {"Range", "bytes=900-"}} {
		if _, _, err := ask(t, s, "GET", at, header...); err != nil {
			t.Fatal(err)
		}
	}
	counted := map[string]Count{at: {Requests: 2, Ranges: 1, Bytes: 1100}}
	if diff := cmp.Diff(counted, m.Counts()); diff != "" {
		t.Error(diff)
	}
	m.Reset()
	if diff := cmp.Diff(map[string]Count{}, m.Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestValidateKnobs(t *testing.T) {
	tests := map[string]Knobs{
		"speed":        {BytesPerSecond: -1},
		"kind":         {Faults: []Fault{{Kind: "explode"}}},
		"no kind":      {Faults: []Fault{{}}},
		"pattern":      {Faults: []Fault{{Kind: Cut, Path: "[kubelet"}}},
		"after":        {Faults: []Fault{{Kind: Cut, After: -1}}},
		"times":        {Faults: []Fault{{Kind: Cut, Times: -1}}},
		"drip":         {Faults: []Fault{{Kind: Drip}}},
		"good status":  {Faults: []Fault{{Kind: Status, Status: 200}}},
		"second fault": {Faults: []Fault{{Kind: Cut}, {Kind: Drip}}},
	}
	for name, k := range tests {
		if err := (&Mirror{}).Set(k); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestControl(t *testing.T) {
	m, _ := single(t, 1000)
	served := m.Catalog()
	later := []Artifact{{Name: "kubelet", Version: version, Path: at}}
	control := httptest.NewServer(m.Control(func(context.Context) (Catalog, error) {
		return Catalog{Files: served.Files, Artifacts: later}, nil
	}))
	defer control.Close()
	c := Client{URL: control.URL, HTTP: control.Client()}
	want := Knobs{
		BytesPerSecond: 5,
		Faults:         []Fault{{Kind: Cut, Path: "kubelet", After: 7, Times: 1}},
	}
	if err := c.Set(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, m.Knobs()); diff != "" {
		t.Error(diff)
	}
	if err := c.Set(t.Context(), Knobs{Faults: []Fault{{Kind: "explode"}}}); err == nil ||
		!strings.Contains(err.Error(), "faults[0]") {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff(want, m.Knobs()); diff != "" {
		t.Errorf("refused knobs were set: %s", diff)
	}
	if list, err := c.Artifacts(t.Context()); len(list) != 0 || err != nil {
		t.Errorf("before anything is built there is %v (%v)", list, err)
	}
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := c.Artifacts(t.Context())
	if diff := cmp.Diff(later, list); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if err := c.Set(t.Context(), Knobs{}); err != nil {
		t.Fatal(err)
	}
	recorded(t.Context(), m)
	counts, err := c.Counts(t.Context())
	if diff := cmp.Diff(map[string]Count{at: {Requests: 1, Bytes: 1000}}, counts); diff != "" ||
		err != nil {
		t.Error(diff, err)
	}
	if err := errors.Join(c.Reset(t.Context()), checkEmpty(m)); err != nil {
		t.Error(err)
	}
}

func checkEmpty(m *Mirror) error {
	if len(m.Counts()) > 0 {
		return errors.New("counts are not zero after Reset")
	}
	return nil
}

// A fault for one client does not affect others.
func TestFaultOfOneClient(t *testing.T) {
	m, _ := single(t, 10)
	s := started(t, m)
	for client, want := range map[string]int{"127.0.0.1": 500, "10.77.0.12": 200} {
		if err := m.Set(Knobs{Faults: []Fault{{Kind: Status, Client: client}}}); err != nil {
			t.Fatal(err)
		}
		if resp, _, err := ask(t, s, http.MethodGet, at); err != nil || resp.StatusCode != want {
			t.Errorf("with a fault of %s: %v, want %d (%v)", client, resp, want, err)
		}
	}
	if err := m.Set(Knobs{Faults: []Fault{{Kind: Status, Client: "edge-1"}}}); err == nil {
		t.Error("a client without an address is accepted")
	}
}
