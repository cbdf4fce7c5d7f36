package artifact

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// paced sends the bytes that are asked for, so many in a second.
func paced(b []byte, rate int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		serve(b, "")(&pacer{ResponseWriter: w, rate: rate, r: r}, r)
	}
}

// pacer passes on the body in pieces, one each second.
type pacer struct {
	http.ResponseWriter
	rate int
	r    *http.Request
}

func (p *pacer) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = p.ResponseWriter.Write(b[n:min(n+p.rate, len(b))])
		n += m
		p.ResponseWriter.(http.Flusher).Flush()
		select {
		case <-p.r.Context().Done():
			return n, p.r.Context().Err()
		case <-time.After(time.Second):
		}
	}
	return n, err
}

// A place that would take long is left for one that was not asked yet, or that is faster, and what
// it has sent is kept. Where it is the only one, or the fastest, it is not left.
func TestSlowPlaces(t *testing.T) {
	b := noise(1, 4<<20)
	missing := status(http.StatusNotFound)
	for _, tt := range []struct {
		name             string
		mirror, upstream http.HandlerFunc
		asked            string
	}{
		{"a slow mirror", paced(b, 8<<10), serve(b, ""), "mirror, upstream goes on"},
		{"a mirror that takes minutes", paced(b, 16<<10), missing, "mirror"},
		{"the only one", missing, paced(b, 8<<10), "mirror, upstream"},
		{"both are slow", paced(b, 8<<10), paced(b, 6<<10), "mirror, upstream goes on"},
		{"the other one is slower", paced(b, 8<<10), paced(b, 2<<10),
			"mirror, upstream goes on, mirror goes on"},
		{"the other one is gone", paced(b, 8<<10), missing,
			"mirror, upstream goes on, mirror goes on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hosts := map[string]http.HandlerFunc{"upstream": tt.upstream,
					"mirror": paths(map[string]http.HandlerFunc{"kubelet": tt.mirror})}
				r, a := newRig(t, mirrors, hosts), binary(Kubelet, b)
				if err := r.Run(t.Context(), []Artifact{a}); err != nil {
					t.Fatal(err)
				}
				r.wantFile(t, a, "kubelet", b, 0o755)
				var asked []string
				for _, line := range r.net.requests() {
					if host, rest, _ := strings.Cut(line, " kubelet "); host != line {
						if rest != "" {
							host += " goes on"
						}
						asked = append(asked, host)
					}
				}
				if got := strings.Join(asked, ", "); got != tt.asked {
					t.Errorf("asked %s\nwant  %s", got, tt.asked)
				}
			})
		})
	}
}

// endless sends zeros as long as they are read, and counts them.
func endless(sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 32<<10); ; {
			n, err := w.Write(piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}
}

// No place sends more than the length that is known, or than a file of its kind can have; the next
// one is asked.
func TestEndlessPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1<<20)
		for name, size := range map[string]int64{"known": int64(len(b)), "unknown": 0} {
			var sent atomic.Int64
			r := newRig(t, mirrors, map[string]http.HandlerFunc{"upstream": serve(b, ""),
				"mirror": paths(map[string]http.HandlerFunc{"runc": endless(&sent)})})
			a := binary(Runc, b)
			a.Size = size
			if err := r.Run(t.Context(), []Artifact{a}); err != nil {
				t.Fatal(err)
			}
			r.wantFile(t, a, "runc", b, 0o755)
			if n, most := sent.Load(), a.maxBytes(false)+1<<20; n > most {
				t.Errorf("%s length: %d bytes were taken, more than %d", name, n, most)
			}
			if left := r.leftovers(t); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		}
	})
}

// A file that is longer than its pin says is refused before its first byte.
func TestLongerThanPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1000)
		r, a := newRig(t, nil, map[string]http.HandlerFunc{"upstream": serve(b, "")}), binary(Runc, b)
		a.Size = 999
		err := r.Run(t.Context(), []Artifact{a})
		if e := new(Error); !errors.As(err, &e) || e.Cause != TooLarge ||
			!strings.Contains(err.Error(), "it has 1000 bytes, more than 999") {
			t.Errorf("got %v", err)
		}
	})
}

// A variant unpacks to no more than the file that it stands for.
func TestVariantUnpacksToItsLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1<<20)
		bomb := zst(make([]byte, 8<<20))
		r := newRig(t, mirrors, map[string]http.HandlerFunc{"upstream": serve(b, ""),
			"mirror": paths(map[string]http.HandlerFunc{"kubelet.zst": serve(bomb, "")})})
		a := binary(Kubelet, b)
		a.Size = int64(len(b))
		if err := r.Run(t.Context(), []Artifact{a}); err != nil {
			t.Fatal(err)
		}
		r.wantFile(t, a, "kubelet", b, 0o755)
		for _, e := range r.events {
			if failed, ok := errors.AsType[*Error](e.Err); ok && strings.Contains(failed.URL, ".zst") &&
				failed.Cause != TooLarge {
				t.Errorf("the bomb was refused with %v", failed)
			}
		}
	})
}

// A disk that a place of unknown length has filled is no reason not to ask the next one; what the
// place has sent goes first.
func TestFullDiskIsPerhapsThePlaces(t *testing.T) {
	store := t.TempDir()
	mount(t, "tmpfs", store, "tmpfs", 0, "size=4m")
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 3<<20)
		r := newRig(t, mirrors, map[string]http.HandlerFunc{"upstream": serve(b, ""),
			"mirror": paths(map[string]http.HandlerFunc{"kubelet": endless(new(atomic.Int64))})})
		r.Store = store
		a := binary(Kubelet, b)
		if err := r.Run(t.Context(), []Artifact{a}); err != nil {
			t.Fatal(err)
		}
		r.wantFile(t, a, "kubelet", b, 0o755)
	})
}
