package front

import (
	"context"
	_ "embed"
	"encoding/base64"
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

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

const (
	subscription    = rptest.Subscription
	cluster         = rptest.ClusterID
	clusterKey      = rptest.ClusterKey
	versionQuery    = "?api-version=2026-05-01-preview"
	subscriptionURL = "/subscriptions/" + subscription + "?api-version=2.0"
	ownProvider     = "/subscriptions/" + subscription + "/providers/" + namespace
	providerURL     = ownProvider + "?api-version=2021-04-01"
	registerURL     = ownProvider + "/register?api-version=2021-04-01"
	publicURL       = rptest.PublicURL
	nodeAudience    = "api://rp.example"
	tenant          = rptest.Tenant
)

func nodeURL(name string, more ...string) string {
	return cluster + "/flexNodeConfig/" + name + strings.Join(more, "") + versionQuery
}

// world is a provider on a store in memory, with a fake of the reconcilers of its clusters.
type world struct {
	t       testing.TB
	memory  *storetest.Memory // nil on another backend
	backend store.Backend
	api     *API
	index   *store.Index
	keys    seal.Ring
	cluster *fakeCluster
	clock   *rptest.Clock
	// front serves the requests, manager is the API for Resource Manager.
	front, manager http.Handler
	handout        *credential.Handout
	// caller is the sender of the requests.
	caller Caller
	audit  *rptest.Log
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, storetest.NewMemory())
}

// beside returns a world for a parallel test.
func beside(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorld(t)
}

// newEdge returns a world with its cluster, for a parallel test.
func newEdge(t *testing.T) *world {
	t.Helper()
	w := beside(t)
	w.register("")
	return w
}

func newWorldOn(t testing.TB, backend store.Backend) *world {
	t.Helper()
	w := &world{
		t: t, backend: backend, clock: rptest.NewClock(), audit: &rptest.Log{}, keys: rptest.Ring(),
		caller: Caller{ObjectID: "operator", Name: "ops@example.com", Type: "User", TenantID: "t"},
	}
	w.memory, _ = backend.(*storetest.Memory)
	w.start()
	w.tell(`{"state":"Registered","properties":{"tenantId":"` + tenant + `"}}`)
	return w
}

// start starts a replica on the store, as after a restart.
func (w *world) start() {
	s := store.New(w.backend)
	ctx, stop := context.WithCancel(context.Background())
	w.index = store.NewIndex(s)
	must(0, w.index.Load(ctx))
	log := slog.New(slog.DiscardHandler)
	audit := slog.New(slog.NewJSONHandler(w.audit, nil))
	w.handout = &credential.Handout{Store: s, Keys: w.keys, PublicURL: publicURL, Now: w.clock.Now}
	credentials := &credential.Service{
		Store: s, Keys: w.keys, Delivery: w.handout, Now: w.clock.Now, Audit: audit, Log: log,
	}
	w.api = &API{
		Store: s, Index: w.index, Seen: &fakeSeen{}, Credentials: credentials,
		Authorizer:  Assignments{{PrincipalID: "operator", Scope: "/", Actions: []string{"*"}}},
		Kubeconfigs: bound{}, PublicURL: publicURL, Endpoints: []string{publicURL, otherURL},
		Defaults: defaults(nil), Renderer: "test", Patience: 20 * time.Second,
		Now: w.clock.Now, Log: log, Audit: audit, Metrics: NewMetrics(prometheus.NewRegistry()),
		Waiters: NewWaiters(25*time.Second, 10_000), Pace: NewPace(0),
		Throttle: fair.NewThrottle(nil, nil, w.clock.Now), Gate: fair.NewGate(fair.AtOnce{}),
	}
	w.index.Subscribe(w.api.Waiters.Wake)
	w.front = w.api.Direct(w.callers())
	w.manager = w.api.BehindARM(authenticate(func(r *http.Request) (Caller, error) {
		return managerCaller(r.Header), nil
	}))
	w.cluster = &fakeCluster{store: s, credentials: credentials, clock: w.clock}
	var running sync.WaitGroup
	index, cluster := w.index, w.cluster // of this replica
	running.Go(func() { index.Follow(ctx, func(error) {}) })
	running.Go(func() { cluster.run(ctx) })
	w.t.Cleanup(func() { stop(); running.Wait() })
}

// defaults returns the layer of an operator's settings.
func defaults(operator map[string]any) *flexnode.Layer {
	return flexnode.DefaultsLayer(flexnode.Polling(operator, publicURL, nodeAudience))
}

// authenticate is an Authenticator.
type authenticate func(*http.Request) (Caller, error)

func (a authenticate) Authenticate(r *http.Request) (Caller, error) { return a(r) }

// callers authenticates everyone as the world's caller.
func (w *world) callers() Authenticator {
	return authenticate(func(*http.Request) (Caller, error) { return w.caller, nil })
}

// bound lets every cluster name every kubeconfig, except for names that begin with "other".
type bound struct{}

func (bound) Check(_, kubeconfig string) error {
	if strings.HasPrefix(kubeconfig, "other") {
		return errors.New("not bound")
	}
	return nil
}

// fakeSeen is liveness in memory.
type fakeSeen struct{ times sync.Map }

func (s *fakeSeen) Note(key string, now time.Time) { s.times.Store(key, now) }

func (s *fakeSeen) Last(key string) time.Time {
	last, _ := s.times.Load(key)
	at, _ := last.(time.Time)
	return at
}

// do sends a request; a header is given as "Name: value".
func (w *world) do(method, url, body string, headers ...string) *http.Response {
	return w.send(w.front, method, url, body, headers...)
}

func (w *world) send(to http.Handler, method, url, body string, headers ...string) *http.Response {
	r := rptest.Request(method, url, body, headers...)
	recorder := httptest.NewRecorder()
	if strings.HasPrefix(url, credential.HandoutPath) {
		to = w.handout
	}
	to.ServeHTTP(recorder, r)
	record(w.t, r, body, recorder)
	return recorder.Result()
}

// serve sends a request, and does not record it.
func (w *world) serve(method, url, body string, headers ...string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	w.front.ServeHTTP(recorder, rptest.Request(method, url, body, headers...))
	return recorder
}

// must sends a request and fails the test unless the status is as wanted.
func (w *world) must(
	status int, method, url, body string, headers ...string,
) (*http.Response, string) {
	w.t.Helper()
	response := w.do(method, url, body, headers...)
	text := readAll(response.Body)
	if response.StatusCode != status {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, url, response.StatusCode, status, text)
	}
	return response, text
}

// settles is must for a change; it waits until the index has it.
func (w *world) settles(
	status int, method, url, body string, headers ...string,
) (*http.Response, string) {
	w.t.Helper()
	response, text := w.must(status, method, url, body, headers...)
	w.caughtUp()
	return response, text
}

// refused sends a request and checks the code of its error, and words of the message.
func (w *world) refused(status int, want, method, url, body string, words ...string) {
	w.t.Helper()
	_, text := w.must(status, method, url, body)
	equal(w.t, method+" "+url, code(text), want)
	has(w.t, method+" "+url, text, words...)
}

// node returns the node in the answer to a request.
func (w *world) node(status int, method, url, body string, headers ...string) api.FlexNodeConfig {
	w.t.Helper()
	return reads[api.FlexNodeConfig](w, status, method, url, body, headers...)
}

// reads sends a request, and reads the answer.
func reads[T any](w *world, status int, method, url, body string, headers ...string) T {
	w.t.Helper()
	_, text := w.must(status, method, url, body, headers...)
	return decoded[T](w.t, text)
}

// operation reads the status of an operation.
func (w *world) operation(url string) operationStatus {
	w.t.Helper()
	return reads[operationStatus](w, 200, "GET", url, "")
}

// buried sends a request for a node, and returns the answer, with its tombstone.
func (w *world) buried(method, url, body string, headers ...string) string {
	w.t.Helper()
	_, text := w.must(404, method, url, body, headers...)
	has(w.t, "the answer", text, TombstoneInfo)
	return text
}

// tell sets the state of the subscription as Resource Manager.
func (w *world) tell(body string) {
	w.t.Helper()
	r := w.send(w.manager, "PUT", subscriptionURL, body)
	shows(w.t, "Resource Manager's PUT of "+body, "200", r.StatusCode)
	w.caughtUp()
}

// register registers the world's cluster.
func (w *world) register(properties string) {
	w.t.Helper()
	w.settles(201, "PUT", clusterURL, registration(properties))
}

// registration returns the body of a registration with properties.
func registration(properties string) string {
	return `{"location":"westeurope","properties":{` + properties + `}}`
}

// asyncOf returns the path of the operation that an answer names.
func asyncOf(r *http.Response) string { return path(r.Header.Get("Azure-AsyncOperation")) }

// fails takes the world's cluster down, and lets no caller wait for it.
func (w *world) fails() {
	w.cluster.isDown.Store(true)
	w.api.Patience = time.Millisecond
}

// regenerateInVain requests a token of a node while its cluster is down, and returns the URL of the
// result.
func (w *world) regenerateInVain() (result string) {
	w.t.Helper()
	w.register("")
	w.must(201, "PUT", nodeURL("n"), withToken)
	w.fails()
	r, _ := w.must(202, "POST", nodeURL("n", "/regenerateToken"), "{}")
	return path(r.Header.Get("Location"))
}

// caughtUp waits until the index has everything that is stored.
func (w *world) caughtUp() {
	w.t.Helper()
	stored := w.revision()
	w.until("the index follows", func() bool { return w.index.Revision() >= stored })
}

// revision returns the store's revision.
func (w *world) revision() int64 { return must(w.backend.Health(context.Background())).Revision }

// until waits for a result of the reconcilers, or of the index.
func (w *world) until(what string, so func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for ; !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// decoded reads an answer.
func decoded[T any](t testing.TB, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// shownConfig returns the configuration in a response.
func shownConfig(t testing.TB, n api.FlexNodeConfig) map[string]any {
	t.Helper()
	return decoded[map[string]any](t, string(n.Properties.Config))
}

// shownNode reads a node out of an answer.
func shownNode(t testing.TB, text string) api.FlexNodeConfig {
	t.Helper()
	return decoded[api.FlexNodeConfig](t, text)
}

// path returns the path and query of a URL of the provider.
func path(url string) string { return strings.TrimPrefix(url, publicURL) }

func code(text string) string {
	var body struct {
		Error struct{ Code string }
	}
	if json.Unmarshal([]byte(text), &body) != nil {
		return fmt.Sprintf("no error body: %s", text)
	}
	return body.Error.Code
}

func readAll(r io.Reader) string { return string(must(io.ReadAll(r))) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// equal fails the test unless two values are equal.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var has, shows = rptest.Has, rptest.Shows

// lacks fails the test if a text has one of some words.
func lacks(t testing.TB, what, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(text, word) {
			t.Errorf("%s has %q: %s", what, word, text)
		}
	}
}

// storedNode returns the stored node of the world's cluster.
func (w *world) storedNode(name string) flexnode.Node {
	w.t.Helper()
	row, err := w.api.Store.Nodes.Get(context.Background(), clusterKey+"/"+name)
	if err != nil || !row.Exists() {
		w.t.Fatalf("the node %s is not there: %v", name, err)
	}
	return row.Value
}

// change changes rows like another process.
func (w *world) change(decide func(*store.View) error) {
	w.t.Helper()
	must(w.api.Store.Update(context.Background(), "test", nil, decide))
	w.caughtUp()
}

// edit changes a row like another process.
func edit[T any](w *world, table store.Table[T], key string, with func(*T)) {
	w.t.Helper()
	w.change(func(v *store.View) error {
		row := table.Row(v, key)
		with(&row.Value)
		return table.Put(v, key, row.Value)
	})
}

// upgrade sets another version of the cluster.
func (w *world) upgrade(version string) {
	w.t.Helper()
	edit(w, w.api.Store.Clusters, clusterKey, func(c *flexnode.Cluster) {
		c.Properties.KubernetesVersion = version
	})
}

// during calls do before the next call of a kind to the store, once.
func (w *world) during(op string, do func()) {
	var done atomic.Bool
	w.memory.Before(func(c storetest.Call) error {
		if c.Op == op && !done.Swap(true) {
			do()
		}
		return nil
	})
	w.t.Cleanup(func() { w.memory.Before(nil) })
}

//go:embed testdata/ca.pem
var caPEM []byte

// testCA is the CA of the cluster, as in kubeconfigs.
var testCA = base64.StdEncoding.EncodeToString(caPEM)

// record writes an exchange to $FLEXNODE_RECORD, from which `make contract` replays it.
func record(t testing.TB, r *http.Request, sent string, recorder *httptest.ResponseRecorder) {
	dir := os.Getenv("FLEXNODE_RECORD")
	if dir == "" || strings.HasPrefix(r.URL.Path, credential.HandoutPath) ||
		strings.Contains(r.URL.Path, "/managedClusters/providers") { // to the validator a provider
		return
	}
	line := must(json.Marshal(map[string]any{
		"request": map[string]any{
			"method": r.Method, "url": r.URL.RequestURI(), "headers": flat(r.Header),
			"body": parsed(sent),
		},
		"response": map[string]any{
			"status": recorder.Code, "headers": flat(recorder.Header()),
			"body": parsed(recorder.Body.String()),
		},
	}))
	name := strings.ReplaceAll(t.Name(), "/", "-") + ".jsonl"
	f := must(os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer f.Close()
	must(f.Write(append(line, '\n')))
}

func flat(h http.Header) map[string]string {
	flat := map[string]string{}
	for name, values := range h {
		flat[strings.ToLower(name)] = values[0]
	}
	return flat
}

// parsed returns nil for what is not JSON.
func parsed(text string) (v any) {
	_ = json.Unmarshal([]byte(text), &v)
	return v
}
