package service

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

func free(t *testing.T) string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// settingsIn returns the settings of a provider in a directory.
func settingsIn(t *testing.T, dir string) Settings {
	t.Helper()
	keys := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"keys":[]}`)
	}))
	t.Cleanup(keys.Close)
	l := pair(t, dir, "provider")
	l.Address = free(t)
	text := must(json.Marshal(Settings{
		Listen: &l, MetricsAddress: free(t), DebugAddress: free(t),
		PublicURL: "https://" + l.Address, DataDir: filepath.Join(dir, "data"),
		KeysFile: keysFile(t, dir), TenantID: "t", LogLevel: "error",
		Authentication: Authentication{Audiences: []string{"a"}, Issuers: []front.Issuer{
			{URL: keys.URL, TenantID: "t", KeysURL: keys.URL}}},
		CAFile: write(t, dir, "ca.pem", encode("CERTIFICATE", keys.Certificate().Raw)),
	}))
	return must(Load(write(t, dir, "settings.json", string(text))))
}

// The check reads the files that a start would read, and reports all problems.
func TestCheckFiles(t *testing.T) {
	s := settingsIn(t, t.TempDir())
	must(0, s.CheckFiles())
	s.ARMListen = &ARMListen{Listen: *s.Listen, ClientCAFile: s.CAFile}
	must(0, s.CheckFiles())
	s.Clusters = []cluster.Binding{{Kubeconfig: "/none"}}
	s.ARMListen.ClientCAFile, s.Blob = s.Listen.KeyFile, &Blob{AccountKeyFile: "/no-secret"}
	s.Listen.KeyFile = s.Listen.CertFile
	must(0, os.Remove(s.CAFile))
	has(t, "the check", fmt.Sprint(s.CheckFiles()), "cannot read the CAs", "read the certificate",
		"it has no certificate", "cannot read a secret", "clusters[0]: ")
}

// The whole program: it starts on an empty directory, answers, reports that it drains, and ends.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	settings := settingsIn(t, dir)
	settings.AuditFile = write(t, dir, "audit.log", "")
	must(0, os.Truncate(settings.AuditFile, 100<<20))
	ctx, stop := context.WithCancel(t.Context())
	told := make(chan string, 100)
	program := Program{Version: "test", Role: All, Notify: func(state string) { told <- state }}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, settings, program, io.Discard) }()
	pool := must(readPool(settings.Listen.CertFile))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	get := func(url string) (int, string) {
		response, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	public := settings.PublicURL
	deadline := time.Now().Add(30 * time.Second)
	for _, path := range []string{"/readyz", "/readyz/write"} {
		for status := 0; status != 200; time.Sleep(20 * time.Millisecond) {
			var text string
			if status, text = get(public + path); time.Now().After(deadline) {
				t.Fatalf("%s: %d %s", path, status, text)
			}
		}
	}
	for url, want := range map[string]struct {
		status int
		text   string
	}{
		public + "/livez":          {200, "ok"},
		public + "/openapi.json":   {200, "flexNodeConfig"},
		public + "/metrics":        {400, "MissingApiVersionParameter"},
		public + "/debug/pprof/":   {400, "MissingApiVersionParameter"},
		public + "/configs/x.json": {403, "AuthenticationFailed"},
		public + "/subscriptions?api-version=2026-05-01-preview": {401, "AuthenticationFailed"},
		"http://" + settings.MetricsAddress + "/metrics":         {200, `_seconds{of="127.`},
		"http://" + settings.MetricsAddress + "/debug/pprof/":    {404, "not found"},
		"http://" + settings.DebugAddress + "/debug/pprof/":      {200, "goroutine"},
	} {
		if status, text := get(url); status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %.300s; want %d %s", url, status, text, want.status, want.text)
		}
	}
	must(os.Stat(filepath.Join(dir, "data", "etcd")))
	var rotated []string
	for len(rotated) != 1 || !strings.HasSuffix(rotated[0], ".gz") { // it is being compressed
		if time.Sleep(20 * time.Millisecond); time.Now().After(deadline) {
			t.Fatalf("the full audit log became %q", rotated)
		}
		rotated = must(filepath.Glob(filepath.Join(dir, "audit-*")))
	}
	equal(t, "the audit log", must(os.Stat(settings.AuditFile)).Size(), 0)
	stop()
	equal(t, "the end", <-ended, nil)
	close(told)
	var states []string
	for state := range told {
		states = append(states, state)
	}
	if slices.Index(states, ready) != 0 || !slices.Contains(states, watchdog) ||
		slices.Index(states, stopping) < slices.Index(states, watchdog) {
		t.Errorf("the service manager was told %q", states)
	}
}

// Audit lines that cannot be written are reported in the log, once, and again when they can be.
func TestLostAuditLinesAreLogged(t *testing.T) {
	var out failingWriter
	var log strings.Builder
	audit := slog.New(slog.NewJSONHandler(&auditWriter{
		Writer: &out, log: slog.New(slog.NewTextHandler(&log, nil)),
	}, nil))
	for i, step := range []struct {
		err  error
		want string // in the log; "" for nothing
	}{
		{nil, ""}, {syscall.ENOSPC, "no space left"}, {syscall.ENOSPC, ""}, {nil, "written again"},
		{nil, ""}, {syscall.EIO, "input/output"}, {nil, "written again"},
	} {
		out.err = step.err
		log.Reset()
		audit.Info("x")
		if got := log.String(); strings.Count(got, "\n") != min(len(step.want), 1) ||
			!strings.Contains(got, step.want) {
			t.Errorf("step %d: the log has %q, want %q", i, got, step.want)
		}
	}
	equal(t, "the lines", strings.Count(out.String(), "\n"), 4)
}

type failingWriter struct {
	strings.Builder
	err error
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	return w.Builder.Write(b)
}

// newHealth returns the health of a replica that has loaded its index and does not follow any more.
func newHealth(t *testing.T) (*storetest.Memory, *health) {
	memory := storetest.NewMemory()
	s := store.New(memory)
	h := &health{index: store.NewIndex(s), store: s}
	must(0, h.index.Load(t.Context()))
	return memory, h
}

// Reading and writing are distinguished, and probes do not use the store (M9).
func TestHealth(t *testing.T) {
	memory, h := newHealth(t)
	mux := http.NewServeMux()
	h.routes(mux)
	check := func(path string, want int, text string) {
		t.Helper()
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		if recorder.Code != want || !strings.Contains(recorder.Body.String(), text) {
			t.Errorf("%s: %d %s; want %d %s", path, recorder.Code, recorder.Body, want, text)
		}
	}
	check("/readyz/write", 503, "does not answer")
	h.ask(t.Context())
	check("/readyz", 200, "ok")
	check("/readyz/write", 200, "ok")

	failure := store.ErrFull
	calls := 0
	memory.Before(func(storetest.Call) error { calls++; return failure })
	h.ask(t.Context())
	calls = 0
	for range 3 {
		check("/livez", 200, "ok")
		check("/readyz", 200, "ok")
		check("/readyz/write", 503, "full")
	}
	equal(t, "the calls of probes to the store", calls, 0)
	h.draining.Store(true)
	check("/readyz", 503, "draining")
	check("/livez", 200, "ok")
}

// A store that another etcd has now was restored or moved: one new epoch begins by itself.
func TestEpochOfAnotherEtcd(t *testing.T) {
	const embedded, restored = "embedded", "restored to embedded"
	type start struct {
		on   string
		want int64
	}
	for _, starts := range [][]start{
		{{"a", 1}, {"a", 1}, {"b", 2}, {"b", 2}, {"a", 3}},
		{{embedded, 1}, {embedded, 1}, {"a", 2}, {"a", 2}, {restored, 3}, {embedded, 3}, {"a", 4}},
		{{embedded, 1}, {restored, 2}, {embedded, 2}, {restored, 3}, {embedded, 3}},
	} {
		st, dir := store.New(storetest.NewMemory()), t.TempDir()
		for i, s := range starts {
			switch s.on {
			case restored:
				must(0, MarkRestored(dir))
				must(0, beginEpoch(t.Context(), st, dir))
			case embedded:
				must(0, beginEpoch(t.Context(), st, dir))
			default:
				must(0, noteCluster(t.Context(), st, s.on, false))
			}
			equal(t, fmt.Sprintf("start %d of %v: the epoch", i, starts), must(st.ReadEpoch(t.Context())),
				s.want)
		}
	}
}

// A store that does not answer makes no replica unready; a replica that alone gets no changes is.
func TestReadyWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, h := newHealth(t)
		var failure error
		memory.Before(func(storetest.Call) error { return failure })
		pass := func(d time.Duration) {
			for ; d > 0; d -= healthInterval {
				h.ask(t.Context())
				time.Sleep(healthInterval)
			}
		}
		failure = errors.New("no leader")
		pass(5 * time.Minute)
		equal(t, "no replica reaches the store", h.reading(), nil)
		failure = nil
		pass(20 * time.Second)
		equal(t, "the store has just come back", h.reading(), nil)
		pass(20 * time.Second)
		equal(t, "it is ready without changes of a store that answers", h.reading() == nil, false)
		equal(t, "it can write", h.writing(), nil)
	})
}

// A backup of a store that was full and had freed nothing makes a provider that starts.
func TestEpochAfterARestoreOfAFullStore(t *testing.T) {
	dir := t.TempDir()
	backend := must(store.Open(t.Context(), dir, store.Options{Quota: 2 << 20, NoSync: true}))
	t.Cleanup(func() { must(0, backend.Close()) })
	s := store.New(backend)
	must(0, s.BeginSchema(t.Context()))
	for full := error(nil); full == nil; {
		row := store.Write{Key: "/flexnode/v2/s/x/a", Value: make([]byte, 64<<10)}
		if _, full = backend.Commit(t.Context(), nil, []store.Write{row}); full != nil &&
			!errors.Is(full, store.ErrFull) {
			t.Fatal(full)
		}
	}
	must(0, beginEpoch(t.Context(), s, dir)) // notes nothing, and the provider starts
	equal(t, "the epoch", must(s.ReadEpoch(t.Context())), 1)
	must(0, MarkRestored(dir))
	must(0, beginEpoch(t.Context(), s, dir))
	equal(t, "the epoch", string(must(s.Meta.Get(t.Context(), "epoch")).Value), "2")
}

// A data directory is marked before it can be started; one that is in use is not marked.
func TestRestoreMarksFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	marked := func(want bool) {
		t.Helper()
		if _, err := os.Lstat(filepath.Join(dir, restoredMark)); (err == nil) != want {
			t.Errorf("the mark: %v, want %v", err, want)
		}
	}
	equal(t, "before it is there", errors.Is(MarkRestored(dir), os.ErrNotExist), true)
	has(t, "without a backup", fmt.Sprint(Restore("no-backup", dir)), "no-backup: no such file")
	marked(true)
	must(0, os.Remove(filepath.Join(dir, restoredMark)))
	must(0, os.MkdirAll(filepath.Join(dir, "etcd"), 0o700))
	has(t, "a directory that is in use", fmt.Sprint(Restore("backup", dir)), "already")
	marked(false)
}

// Old tombstones and operations are deleted, younger ones are kept. The Arc machines of deleted
// nodes are kept as long as the tombstones, and their secrets for a while.
func TestCollectOld(t *testing.T) {
	s := store.New(storetest.NewMemory())
	now := time.Now()
	const year = 365 * 24 * time.Hour
	must(s.Update(t.Context(), "test", nil, func(v *store.View) error {
		stone := func(key string, age time.Duration) error {
			return s.AddTombstone(v, key, flexnode.Tombstone{Deleted: now.Add(-age)})
		}
		left := func(key string, age time.Duration) error {
			return s.ArcLeft.Put(v, key, store.ArcLeft{Deleted: now.Add(-age), Secret: &seal.Box{}})
		}
		operation := func(key string, age time.Duration, ended time.Time) error {
			return s.Operations.Put(v, key, flexnode.Operation{Started: now.Add(-age), Ended: ended})
		}
		leaving := s.Certificates.Put(v, "leaving", flexnode.Certificates{Leaving: "u"})
		return errors.Join(leaving, s.Certificates.Put(v, "over", flexnode.Certificates{}),
			stone("old", year+time.Second), stone("young", time.Hour),
			stone("both", year+time.Second), stone("both", time.Hour),
			s.AddTombstone(v, "young", flexnode.Tombstone{UID: "new", Deleted: now}),
			s.AddTombstone(v, "young", flexnode.Tombstone{UID: "old", Deleted: now}),
			left("old/u", 0), left("young/new", 0), left("young/old", credential.SecretAge),
			operation("old", front.OperationAge+time.Second, now), operation("young", time.Hour, now),
			operation("going on", front.OperationAge+time.Second, time.Time{}))
	}))
	must(0, collectOld(t.Context(), s, now))
	stones := list(t, s.Tombstones)
	if len(stones) != 2 || stones[0].Key != "both" || stones[1].Key != "young" ||
		len(stones[0].Value.Stored) != 1 {
		t.Errorf("tombstones: %v", stones)
	}
	left := list(t, s.ArcLeft)
	if len(left) != 2 || left[0].Key != "young/new" || left[0].Value.Secret == nil ||
		left[1].Key != "young/old" || left[1].Value.Secret != nil {
		t.Errorf("Arc machines that are left: %v", left)
	}
	certificates := list(t, s.Certificates)
	if len(certificates) != 1 || certificates[0].Key != "leaving" {
		t.Errorf("certificates: %v", certificates)
	}
	operations := list(t, s.Operations)
	if len(operations) != 2 || operations[0].Key != "going on" || operations[1].Key != "young" {
		t.Errorf("operations: %v", operations)
	}
}

// Polls that wait leave a quarter of the connections to others: one more is answered at once.
func TestWaitersLeaveConnections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.settings.Limits.Connections.Max, w.settings.Polls.WaitSeconds = 8, 20
		limited := w.another(Front)
		for i := range 7 {
			w.must(201, "PUT", nodeURL(fmt.Sprint("n", i)), withToken)
		}
		pass(time.Second)
		poll := func(node string) *http.Response {
			r, _ := w.must(200, "GET", nodeURL(node), "")
			return limited.do("GET", nodeURL(node), "", "If-None-Match: "+r.Header.Get("ETag"),
				"Prefer: wait=20")
		}
		for i := range 6 {
			go poll(fmt.Sprint("n", i))
		}
		synctest.Wait()
		equal(t, "the polls that wait", limited.api.Waiters.Count(), 6)
		began := time.Now()
		r := poll("n6")
		equal(t, "the seventh", r.StatusCode, http.StatusNotModified)
		equal(t, "its wait", time.Since(began), 0)
		equal(t, "its preference", r.Header.Get("Preference-Applied"), "")
		pass(time.Minute)
		equal(t, "the polls that wait afterwards", limited.api.Waiters.Count(), 0)
	})
}
