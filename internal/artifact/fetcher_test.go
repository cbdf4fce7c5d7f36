package artifact

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestResumeAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1<<20)
		a := binary(Kubelet, b)
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": sequence(stall(b),
			serve(b, ""))})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := r.Run(ctx, []Artifact{a}); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want it cancelled", err)
		}
		if diff := cmp.Diff([]string{keptPrefix + a.ID}, r.leftovers(t)); diff != "" {
			t.Fatal(diff)
		}
		os.MkdirAll(filepath.Join(r.Store, partialPrefix+a.ID, "bin"), 0o700) // of a killed process
		if err := r.again().Run(t.Context(), []Artifact{a}); err != nil || len(r.leftovers(t)) > 0 {
			t.Fatalf("%v, left are %v", err, r.leftovers(t))
		}
		r.wantFile(t, a, "kubelet", b, 0o755)
		if got := r.net.requests()[1]; got != "upstream kubelet bytes=524288-" {
			t.Errorf("second request was %q", got)
		}
	})
}

func TestResumeOfWhatIsKept(t *testing.T) {
	b := noise(1, 300_000)
	tests := []struct {
		name  string
		kept  []byte
		asked []string
	}{
		{"complete", b, []string{"bytes=300000-"}},
		{"too long", append(b[:len(b):len(b)], 1), []string{"bytes=300001-", ""}},
		{"damaged", noise(2, 1000), []string{"bytes=1000-", ""}},
		{"damaged, of full length", noise(2, 300_000), []string{"bytes=300000-", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, a := newRig(t, nil, map[string]http.HandlerFunc{"upstream": serve(b, "")}),
					binary(Runc, b)
				if err := os.WriteFile(filepath.Join(r.Store, keptPrefix+a.ID), tt.kept,
					0o600); err != nil {
					t.Fatal(err)
				}
				if err := r.Run(t.Context(), []Artifact{a}); err != nil {
					t.Fatal(err)
				}
				r.wantFile(t, a, "runc", b, 0o755)
				var asked []string
				for _, req := range r.net.requests() {
					asked = append(asked, strings.TrimPrefix(req, "upstream runc "))
				}
				if diff := cmp.Diff(tt.asked, asked); diff != "" {
					t.Errorf("ranges (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestKeptFileMayNotBeALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1000)
		r, a := newRig(t, nil, map[string]http.HandlerFunc{"upstream": serve(b, "")}),
			binary(Runc, b)
		victim := filepath.Join(t.TempDir(), "victim")
		os.WriteFile(victim, []byte("precious"), 0o600)
		os.Symlink(victim, filepath.Join(r.Store, keptPrefix+a.ID))
		if err := r.Run(t.Context(), []Artifact{a}); err == nil {
			t.Error("the link was followed")
		}
		if got, _ := os.ReadFile(victim); string(got) != "precious" {
			t.Errorf("victim is %q", got)
		}
	})
}

func TestLateOnesWaitForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := map[string][]byte{}
		hosts, arts := map[string]http.HandlerFunc{}, []Artifact(nil)
		for i, n := range []Name{Kubectl, NPD, Kubeadm, Containerd, Kubelet, Runc, CNIPlugins} {
			b[string(n)] = noise(byte(i), 1000)
			arts = append(arts, binary(n, b[string(n)]))
			hosts[string(n)] = serve(b[string(n)], "")
		}
		hosts["runc"] = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Second)
			serve(b["runc"], "")(w, r)
		}
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": paths(hosts)})
		if err := r.Run(t.Context(), arts); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, e := range r.events {
			if e.Kind == Done {
				order = append(order, string(e.Artifact.Name))
			}
		}
		slices.Sort(order[:4])
		slices.Sort(order[4:])
		want := []string{"cni-plugins", "containerd", "kubelet", "runc", "kubeadm", "kubectl",
			"node-problem-detector"}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		done := slices.IndexFunc(r.events,
			func(e Event) bool { return e.Kind == Done && e.Artifact.Name == Runc })
		late := slices.IndexFunc(r.events,
			func(e Event) bool { return e.Kind == Progress && e.Artifact.Late })
		if late < done {
			t.Error("a late artifact began before runc was there")
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast, slow := noise(1, 1000), noise(2, 1000)
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": paths(
			map[string]http.HandlerFunc{
				"runc": serve(fast, ""),
				"kubelet": func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(10 * time.Second)
					serve(slow, "")(w, r)
				},
			})})
		r.Artifacts = []Artifact{binary(Kubelet, slow), binary(Runc, fast),
			binary(Containerd, []byte("gone"))}
		begin := time.Now()
		d := r.Start(t.Context())
		defer d.End()
		wait := func(ctx context.Context, content []byte) error {
			return d.WaitFor(ctx, "/store", "/store/"+sha(content)+"/file")
		}
		if err := wait(t.Context(), fast); err != nil || time.Since(begin) != 0 {
			t.Errorf("runc: %v after %v", err, time.Since(begin))
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := wait(short, slow); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an impatient wait gave %v", err)
		}
		if err := wait(t.Context(), slow); err != nil || time.Since(begin) != 10*time.Second {
			t.Errorf("kubelet: %v after %v", err, time.Since(begin))
		}
		e := new(Error)
		if err := wait(t.Context(), []byte("gone")); !errors.As(err, &e) || e.Cause != NotFound {
			t.Errorf("containerd: %v", err)
		}
		if err := d.WaitAll(t.Context(), nil, nil); !errors.As(err, &e) || e.Name != Containerd {
			t.Errorf("all: %v", err)
		}
		if err := wait(t.Context(), []byte("unknown")); err != nil {
			t.Errorf("what is not fetched is waited for: %v", err)
		}
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1<<20)
		a := binary(Kubelet, b)
		a.URL += "?sig=secret"
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": sequence(cut(b, 700_000),
			serve(b, ""))})
		if err := r.Run(t.Context(), []Artifact{a}); err != nil {
			t.Fatal(err)
		}
		if got := r.kinds(); got != "retrying done" {
			t.Errorf("events: %s", got)
		}
		for _, e := range r.events {
			if e.Err != nil && strings.Contains(e.Err.Error(), "secret") {
				t.Errorf("secret in %v", e)
			}
			if e.Kind == Progress && e.Bytes > e.Total || e.Kind == Retrying &&
				(e.Pause < 250*time.Millisecond || e.Pause > 750*time.Millisecond) {
				t.Errorf("strange event %+v", e)
			}
		}
		last := r.events[len(r.events)-2]
		if last.Kind != Progress || last.Bytes != 1<<20 || last.Total != 1<<20 {
			t.Errorf("last progress is %+v", last)
		}
		again := r.again()
		if err := again.Run(t.Context(), []Artifact{a}); err != nil || len(again.events) > 0 {
			t.Errorf("second run: %v, %s", err, again.kinds())
		}
		if n := len(r.net.requests()); n != 2 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestOneErrorForEachPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, []string{"https://user:hidden@mirror", "https://nowhere"},
			map[string]http.HandlerFunc{
				"mirror": status(503), "upstream": status(404),
			})
		a := binary(Kubelet, []byte("x"))
		err := r.Run(t.Context(), []Artifact{a})
		want := strings.Join([]string{
			"cannot get kubelet 1.2.3 from any of 3 places:",
			"  https://mirror/upstream/v1.2.3/kubelet: HTTP status 503 Service Unavailable; " +
				"try again later, or add a mirror to artifacts.mirrors",
			"  https://nowhere/upstream/v1.2.3/kubelet: the name nowhere does not resolve; " +
				"check the machine's DNS servers (resolvectl status)",
			"  https://upstream/v1.2.3/kubelet: file not found (HTTP 404); " +
				"check the version, or whether the mirror has this file",
		}, "\n")
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		f := new(Failure)
		if !errors.As(err, &f) || len(f.Last) != 3 {
			t.Errorf("got %#v", err)
		}
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": status(500)})
		if err := r.Run(t.Context(), []Artifact{binary(Kubelet, []byte("x"))}); err == nil {
			t.Fatal("no error")
		}
		var pauses []time.Duration
		for _, e := range r.events {
			if e.Kind == Retrying {
				pauses = append(pauses, e.Pause)
			}
		}
		s := time.Second
		for i, want := range []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s} {
			if len(pauses) != 7 || pauses[i] < want/2 || pauses[i] > want*3/2 {
				t.Fatalf("the pauses are %v; number %d is not about %s", pauses, i, want)
			}
		}
	})
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		r := newRig(t, []string{"https://one", "https://two"},
			map[string]http.HandlerFunc{"one": silent, "two": silent, "upstream": silent})
		begin := time.Now()
		if err := r.Run(t.Context(), []Artifact{binary(Kubelet, []byte("x"))}); err == nil {
			t.Fatal("no error")
		}
		if took := time.Since(begin); took < budget || took > budget+time.Minute {
			t.Errorf("gave up after %v", took)
		}
		if n := len(r.net.requests()); n >= 5*maxTries {
			t.Errorf("%d requests: the places were given up before the budget was spent", n)
		}
	})
}

func TestProgressRenewsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 3<<20)
		pieces := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(patience - time.Second)
			rw := &cutter{ResponseWriter: w, left: 80_000}
			serve(b, `"v1"`)(rw, r)
		}
		r, a := newRig(t, nil, map[string]http.HandlerFunc{"upstream": pieces}), binary(Kubelet, b)
		begin := time.Now()
		if err := r.Run(t.Context(), []Artifact{a}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < budget {
			t.Errorf("it took only %v", took)
		}
		if n := len(r.net.requests()); n != 40 {
			t.Errorf("%d requests for 40 pieces", n)
		}
	})
}

// cutter ends the connection after some bytes of the body.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}
