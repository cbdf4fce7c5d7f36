package rp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	discovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	corev1 "k8s.io/api/core/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

const (
	subscription = "11111111-2222-3333-4444-555555555555"
	cluster      = "/subscriptions/" + subscription + "/resourceGroups/Edge/providers/Microsoft.ContainerService/managedClusters/Factory"
	clusterKey   = subscription + "/edge/factory"
	versionQuery = "?api-version=2026-05-01-preview"
)

func nodeURL(name string, more ...string) string {
	return cluster + "/flexNodeConfig/" + name + strings.Join(more, "") + versionQuery
}

// world is a provider with a cluster, both in process.
type world struct {
	t       testing.TB
	server  *Server
	cluster *fakeCluster
	clock   *clock
	front   http.Handler
	bundles *OwnBundles
	// caller is who the requests come from.
	caller Caller
	audit  bytes.Buffer
	mu     sync.Mutex
}

// clock is a time that goes on when it is told to.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(0, c.nanos.Load()) }
func (c *clock) pass(d time.Duration) { c.nanos.Add(int64(d)) }

// fakeCluster is client-go's own fake of an API server, which can be out of reach.
type fakeCluster struct {
	*fake.Clientset
	down atomic.Bool
}

var errDown = errors.New("connection refused")

func newFakeCluster() *fakeCluster {
	c := &fakeCluster{Clientset: fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: "kube-system"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}})}
	c.Discovery().(*discovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.35.4"}
	c.PrependReactor("*", "*", func(ktesting.Action) (bool, runtime.Object, error) {
		return c.down.Load(), nil, errDown
	})
	return c
}

// Target implements Clusters.
func (c *fakeCluster) Target(context.Context, store.Cluster) (Target, error) {
	if c.down.Load() {
		return Target{}, errDown
	}
	return Target{Interface: c.Clientset, ServerURL: "https://factory.example:6443", CA: placeholderCA}, nil
}

// secrets lists the bootstrap tokens in the cluster.
func (c *fakeCluster) secrets(t testing.TB) []corev1.Secret {
	t.Helper()
	list, err := c.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func newWorld(t testing.TB) *world {
	t.Helper()
	e, err := store.Open(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cluster: newFakeCluster(), clock: &clock{}, caller: Caller{ObjectID: "operator", Name: "ops@example.com", Type: "User", TenantID: "t"}}
	w.clock.nanos.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	w.start(store.New(e.Client()), seal.Ring{Keys: []seal.Key{key}})
	w.must(200, "PUT", "/subscriptions/"+subscription+"?api-version=2.0", `{"state":"Registered","properties":{"tenantId":"99999999-0000-0000-0000-000000000000"}}`)
	return w
}

// start makes a replica on a store, as after a restart.
func (w *world) start(s *store.Store, keys seal.Ring) {
	ctx, stop := context.WithCancel(context.Background())
	x := s.NewIndex()
	if err := x.Load(ctx); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Follow(ctx, func(error) {})
	}()
	w.t.Cleanup(func() { stop(); <-done })
	w.bundles = &OwnBundles{Store: s, Keys: keys, PublicURL: "https://provider.example", Now: w.clock.now}
	w.server = &Server{
		Store: s, Index: x, Keys: keys, Bundles: w.bundles, Clusters: w.cluster,
		Authorizer: Assignments{{PrincipalID: "operator", Scope: "/", Actions: []string{"*"}}},
		TenantID:   "88888888-0000-0000-0000-000000000000", Now: w.clock.now, Log: slog.New(slog.DiscardHandler),
		Audit: slog.New(slog.NewJSONHandler(lockedWriter{w}, nil)), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	w.front = w.server.Direct(callers{w})
}

type lockedWriter struct{ w *world }

func (l lockedWriter) Write(b []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.audit.Write(b)
}

// callers authenticates everybody as the world's caller.
type callers struct{ w *world }

func (c callers) Authenticate(*http.Request) (Caller, error) { return c.w.caller, nil }

// do sends a request; a header is given as "Name: value".
func (w *world) do(method, url, body string, headers ...string) *http.Response {
	w.t.Helper()
	r := httptest.NewRequest(method, "https://provider.example"+url, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	handler := w.front
	if strings.HasPrefix(url, bundlePath) {
		handler = w.bundles
	}
	handler.ServeHTTP(recorder, r)
	record(w.t, r, body, recorder)
	return recorder.Result()
}

// must sends a request and fails the test unless the status is as wanted.
func (w *world) must(status int, method, url, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	response := w.do(method, url, body, headers...)
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if response.StatusCode != status {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, url, response.StatusCode, status, text)
	}
	return response, string(text)
}

// shownNode reads a node out of an answer.
func shownNode(t testing.TB, text string) api.FlexNodeConfig {
	t.Helper()
	var n api.FlexNodeConfig
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return n
}

// register makes the world's cluster known.
func (w *world) register(properties string) {
	w.t.Helper()
	w.must(201, "PUT", cluster+versionQuery, `{"location":"westeurope","properties":{`+properties+`}}`)
	w.settled()
}

// settled waits until the index has seen all that is stored: a row of no table that is written now, and what was before it.
func (w *world) settled() {
	w.t.Helper()
	put, err := w.server.Store.Client().Put(w.t.Context(), "/flexnode/v1/i/marker", "")
	if err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); w.server.Index.Revision() < put.Header.Revision; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("the index does not follow")
		}
	}
}

// sweep lets time pass and has the controller do what is due.
func (w *world) sweep() {
	w.t.Helper()
	w.clock.pass(2 * sweepInterval)
	w.settled()
	if err := w.server.Sweep(w.t.Context(), clusterKey); err != nil {
		w.t.Logf("sweep: %v", err)
	}
}

// path is the path and query of a URL of the provider.
func path(url string) string { return strings.TrimPrefix(url, "https://provider.example") }

func code(text string) string {
	var body struct {
		Error struct{ Code string }
	}
	if json.Unmarshal([]byte(text), &body) != nil {
		return fmt.Sprintf("no error body: %s", text)
	}
	return body.Error.Code
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// record writes an exchange to $FLEXNODE_RECORD, where `make contract` replays it from through a third party's validator.
func record(t testing.TB, r *http.Request, sent string, recorder *httptest.ResponseRecorder) {
	t.Helper()
	dir := os.Getenv("FLEXNODE_RECORD")
	if dir == "" || strings.HasPrefix(r.URL.Path, bundlePath) {
		return
	}
	flat := func(h http.Header) map[string]string {
		flat := map[string]string{}
		for name, values := range h {
			flat[strings.ToLower(name)] = values[0]
		}
		return flat
	}
	body := func(text string) any {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return nil
		}
		return v
	}
	line, err := json.Marshal(map[string]any{
		"request":  map[string]any{"method": r.Method, "url": r.URL.RequestURI(), "headers": flat(r.Header), "body": body(sent)},
		"response": map[string]any{"status": recorder.Code, "headers": flat(recorder.Header()), "body": body(recorder.Body.String())},
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
}
