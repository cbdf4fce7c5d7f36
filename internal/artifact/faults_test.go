package artifact

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var mirrors = []string{"https://mirror/base/"}

// stall sends half of b and then nothing until the client gives up.
func stall(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Write(b[:len(b)/2])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// trickle sends one byte each second.
func trickle(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := range b {
			if _, err := w.Write(b[i : i+1]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Second):
			}
		}
	}
}

// without removes a header of the request before it is handled.
func without(name string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(name)
		h(w, r)
	}
}

// fault is a way in which servers misbehave.
type fault struct {
	name     string
	upstream http.HandlerFunc
	mirror   http.HandlerFunc
	// cause is the expected end; empty means success.
	cause Cause
	// requests is the number of requests sent.
	requests int
}

// faults are about a file with the bytes good.
func faults(good []byte) []fault {
	other, ok := noise(2, len(good)), serve(good, `"v1"`)
	return []fault{
		{name: "clean", upstream: ok, requests: 1},
		{name: "cut once", upstream: sequence(cut(good, 700_000), ok), requests: 2},
		{name: "cut always, no new bytes", upstream: cut(good, 700_000), cause: Cut, requests: 8},
		{name: "no range after a cut", upstream: sequence(cut(good, 700_000), without("Range", ok)),
			requests: 2},
		{name: "another file between ranges", upstream: sequence(cut(other, 500_000), ok),
			requests: 3},
		{name: "500 five times", upstream: sequence(status(500), status(502), status(503),
			status(500), status(429), ok), requests: 6},
		{name: "500 always", upstream: status(500), cause: Overloaded, requests: 8},
		{name: "wrong bytes once", upstream: sequence(serve(other, ""), ok), requests: 2},
		{name: "wrong bytes always", upstream: serve(other, ""), cause: Digest, requests: 2},
		{name: "truncated file of right kind", upstream: serve(good[:700_000], ""), cause: Digest,
			requests: 2},
		{name: "captive portal once", upstream: sequence(page("text/html; charset=utf-8"), ok),
			requests: 2},
		{name: "captive portal", upstream: page("text/html"), cause: CaptivePortal, requests: 3},
		{name: "captive portal that lies about its type",
			upstream: page("application/octet-stream"), cause: CaptivePortal, requests: 3},
		{name: "web page that does not look like one", upstream: text("Please log in."),
			cause: CaptivePortal, requests: 3},
		{name: "stalled once", upstream: sequence(stall(good), ok), requests: 2},
		{name: "stalled always", upstream: stall(good), cause: Stalled, requests: 8},
		{name: "too slow to be alive", upstream: trickle(good), cause: Stalled, requests: 8},
		{name: "not found", upstream: status(404), cause: NotFound, requests: 1},
		{name: "forbidden", upstream: status(403), cause: Forbidden, requests: 1},
		{name: "too large", upstream: claim(1 << 30), cause: TooLarge, requests: 1},
		{name: "redirect to http", upstream: http.RedirectHandler("http://upstream/x",
			http.StatusFound).ServeHTTP, cause: Redirect, requests: 1},
		{name: "redirect without end",
			upstream: http.RedirectHandler("https://upstream/x", http.StatusFound).ServeHTTP,
			cause:    Redirect, requests: 10},
		{name: "range of other bytes", upstream: sequence(cut(good, 700_000), otherRange),
			cause: Status, requests: 2},

		{name: "mirror first", mirror: ok, upstream: status(500), requests: 2},
		{name: "mirror without the file", mirror: status(404), upstream: ok, requests: 3},
		{name: "mirror forbids", mirror: status(403), upstream: ok, requests: 3},
		{name: "mirror with wrong bytes",
			mirror: paths(map[string]http.HandlerFunc{"kubelet": serve(other, "")}), upstream: ok,
			requests: 3},
		{name: "mirror cut, rest from upstream",
			mirror: sequence(status(404), cut(good, 700_000), status(500)), upstream: ok,
			requests: 4},
		{name: "bad part from the mirror is no fault of upstream",
			mirror:   paths(map[string]http.HandlerFunc{"kubelet": cut(other, 700_000)}),
			upstream: ok, requests: 5},
		{name: "stalled mirror", mirror: sequence(status(404), stall(good)), upstream: ok,
			requests: 3},
		{name: "slow mirror", mirror: sequence(status(404), trickle(good)), upstream: ok,
			requests: 3},
		{name: "portal on the mirror", mirror: page("text/html"), upstream: ok, requests: 3},
	}
}

func TestFaults(t *testing.T) {
	good := noise(1, 1<<20)
	for _, tt := range faults(good) {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hosts, bases := map[string]http.HandlerFunc{"upstream": tt.upstream}, []string(nil)
				if tt.mirror != nil {
					hosts["mirror"], bases = tt.mirror, mirrors
				}
				r, a := newRig(t, bases, hosts), binary(Kubelet, good)
				err := r.Run(t.Context(), []Artifact{a})
				if got := len(r.net.requests()); got != tt.requests {
					t.Errorf("%d requests, want %d:\n%s", got, tt.requests,
						strings.Join(r.net.requests(), "\n"))
				}
				if tt.cause == "" {
					if err != nil {
						t.Fatal(err)
					}
					r.wantFile(t, a, "kubelet", good, 0o755)
					if left := r.leftovers(t); len(left) > 0 {
						t.Errorf("left over: %v", left)
					}
					return
				}
				e := new(Error)
				if !errors.As(err, &e) || e.Cause != tt.cause {
					t.Fatalf("got error %v, want cause %q", err, tt.cause)
				}
				if present(r.Store, a.ID) {
					t.Error("there is an entry in spite of the error")
				}
				if !strings.Contains(err.Error(),
					"cannot get kubelet 1.2.3 from https://upstream/v1.2.3/kubelet: ") {
					t.Errorf("the error does not name artifact and URL: %v", err)
				}
			})
		})
	}
}

// text answers with a page that only its type gives away.
func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, s)
	}
}

func claim(length int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
		w.WriteHeader(http.StatusOK)
	}
}

func otherRange(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Range", "bytes 0-9/1048576")
	w.WriteHeader(http.StatusPartialContent)
	w.Write(make([]byte, 10))
}

func TestArchive(t *testing.T) {
	a, targz, plain := archive(t)
	evil := zst([]byte("something else entirely"))
	tests := []struct {
		name   string
		mirror map[string]http.HandlerFunc
		asked  []string
	}{
		{"zstd from the mirror", map[string]http.HandlerFunc{"containerd.tar.zst": serve(zst(plain),
			"")},
			[]string{"mirror containerd.tar.zst "}},
		{"no zstd there", map[string]http.HandlerFunc{"containerd.tar.gz": serve(targz, "")},
			[]string{"mirror containerd.tar.zst ", "mirror containerd.tar.gz "}},
		{"zstd of another tar", map[string]http.HandlerFunc{"containerd.tar.zst": serve(evil, ""),
			"containerd.tar.gz": serve(targz, "")},
			[]string{"mirror containerd.tar.zst ", "mirror containerd.tar.gz "}},
		{"zstd that is none", map[string]http.HandlerFunc{"containerd.tar.zst": serve(noise(3,
			5000), ""), "containerd.tar.gz": serve(targz, "")},
			[]string{"mirror containerd.tar.zst ", "mirror containerd.tar.gz "}},
		{"zstd of the right tar and more",
			map[string]http.HandlerFunc{"containerd.tar.zst": serve(zst(append(plain[:len(
				plain):len(plain)], 1)), ""), "containerd.tar.gz": serve(targz, "")},
			[]string{"mirror containerd.tar.zst ", "mirror containerd.tar.gz "}},
		{"cut zstd is resumed", map[string]http.HandlerFunc{"containerd.tar.zst": sequence(cut(zst(
			plain), 200_000), serve(zst(plain), ""))},
			[]string{"mirror containerd.tar.zst ", "mirror containerd.tar.zst bytes=200000-"}},
		{"cut gzip is resumed", map[string]http.HandlerFunc{"containerd.tar.gz": sequence(cut(targz,
			200_000), serve(targz, ""))},
			[]string{"mirror containerd.tar.zst ", "mirror containerd.tar.gz ",
				"mirror containerd.tar.gz bytes=200000-"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, mirrors, map[string]http.HandlerFunc{"mirror": paths(tt.mirror),
					"upstream": status(500)})
				if err := r.Run(t.Context(), []Artifact{a}); err != nil {
					t.Fatal(err)
				}
				r.wantFile(t, a, "bin/containerd", noise(7, 300_000), 0o755)
				r.wantFile(t, a, "README", []byte("read me"), 0o644)
				if left := r.leftovers(t); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
				if diff := cmp.Diff(tt.asked, r.net.requests()); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				want := []string{"README", "bin/containerd"}
				if diff := cmp.Diff(want, files(t, r.Store, a.ID)); diff != "" {
					t.Errorf("files: %s", diff)
				}
			})
		})
	}
}

func TestBadArchiveWithRightDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targz := gz(makeTar(t, []file{{name: "ok", body: "x"}, {name: "../out", body: "x"}}))
		a := binary(CNIPlugins, targz)
		a.Archive = true
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": serve(targz, "")})
		err := r.Run(t.Context(), []Artifact{a})
		e := new(Error)
		if !errors.As(err, &e) || e.Cause != Archive ||
			!strings.Contains(err.Error(), `"../out" leaves the archive`) {
			t.Errorf("got %v", err)
		}
		if left := r.leftovers(t); len(left) > 0 || present(r.Store, a.ID) {
			t.Errorf("left over: %v", left)
		}
	})
}

// A login page instead of the file does not remove the partial download.
func TestPortalKeepsThePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1<<20)
		r, a := newRig(t, nil, map[string]http.HandlerFunc{"upstream": sequence(cut(b, 700_000),
			page("application/octet-stream"), serve(b, ""))}), binary(Kubelet, b)
		if err := r.Run(t.Context(), []Artifact{a}); err != nil {
			t.Fatal(err)
		}
		if got := r.net.requests()[2]; got != "upstream kubelet bytes=700000-" {
			t.Errorf("third request was %q", got)
		}
	})
}

func TestShortAnswerWithoutLengthIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1<<20)
		short := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 700000-%d/%d", len(b)-1, len(b)))
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush()
			w.Write(b[700_000:800_000])
		}
		r, a := newRig(t, nil, map[string]http.HandlerFunc{"upstream": sequence(cut(b, 700_000),
			short, serve(b, ""))}), binary(Kubelet, b)
		if err := r.Run(t.Context(), []Artifact{a}); err != nil {
			t.Fatal(err)
		}
		if got := r.net.requests()[2]; got != "upstream kubelet bytes=800000-" {
			t.Errorf("third request was %q", got)
		}
	})
}
