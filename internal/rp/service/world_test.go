package service

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

const (
	subscription = rptest.Subscription
	tenant       = rptest.Tenant
	clusterID    = rptest.ClusterID
	versionQuery = "?api-version=" + api.APIVersion
	publicURL    = rptest.PublicURL
	withToken    = `{"properties":{"nodeConfig":{"maxPods":40}}}`
)

func nodeURL(name string, more ...string) string {
	return clusterID + "/flexNodeConfig/" + name + strings.Join(more, "") + versionQuery
}

func TestMain(m *testing.M) {
	kubetest.Warm()
	os.Exit(m.Run())
}

// world is the whole provider on a store in memory, with a fake cluster, in a bubble of time.
type world struct {
	t        testing.TB
	memory   *storetest.Memory // the connection of the present replica
	settings Settings
	role     Role // of the replicas that are started
	cluster  *fakeCluster
	*service
	front, manager http.Handler
	// caller is the sender of the requests.
	caller front.Caller
	audit  *rptest.Log
	// drain ends the present replica in order, kill at once.
	drain, kill func()
}

// fakeCluster is an API server that can be made unreachable.
type fakeCluster struct{ *kubetest.Cluster }

// Access implements cluster.Source.
func (c *fakeCluster) Access(context.Context, flexnode.Cluster, bool) (cluster.Access, error) {
	return cluster.Access{Fingerprint: "factory"}, nil
}

func (c *fakeCluster) dial(cluster.Access) (*cluster.Connection, error) {
	return &cluster.Connection{Client: c, CA: testCA(), ServerURL: "https://factory.example:6443",
		Version: c.Serves}, nil
}

var testCA = sync.OnceValue(func() []byte {
	return must(os.ReadFile("../flexnode/placeholder.pem"))
})

// register registers the world's cluster.
func (w *world) register() {
	w.t.Helper()
	w.must(201, "PUT", clusterID+versionQuery, `{"location":"westeurope","properties":{}}`)
	pass(time.Second)
}

// newWorld returns a provider with one replica, without a cluster.
func newWorld(t testing.TB, role Role) *world {
	t.Helper()
	w := &world{
		t: t, role: role, cluster: &fakeCluster{kubetest.New("factory")}, audit: &rptest.Log{},
		caller: front.Caller{ObjectID: "operator", Name: "ops@example.com", Type: "User",
			TenantID: tenant},
		settings: Settings{
			PublicURL: publicURL, OtherURLs: []string{publicURL}, Installation: "here",
			KeysFile: keysFile(t, t.TempDir()), TenantID: "unknown",
			RoleAssignments: front.Assignments{{PrincipalID: "operator", Scope: "/",
				Actions: []string{"*"}}},
		},
	}
	w.start(storetest.NewMemory())
	w.send(w.manager, "PUT", "/subscriptions/"+subscription+"?api-version=2.0",
		`{"state":"Registered","properties":{"tenantId":"`+tenant+`"}}`)
	pass(time.Second)
	return w
}

// keysFile writes a file with a key.
func keysFile(t testing.TB, dir string) string {
	path := filepath.Join(dir, "keys.json")
	must(seal.Init(path, seal.RootFile(path), time.Now()))
	return path
}

// newService returns a provider on a store, without logs.
func newService(settings Settings, role Role, memory *storetest.Memory) *service {
	silent := slog.New(slog.DiscardHandler)
	return &service{Program: Program{Version: "test", Role: role, Notify: func(string) {}},
		settings: settings, log: silent, audit: silent, store: store.New(memory),
		registry: prometheus.NewRegistry(), fatal: make(chan error, 8)}
}

// begin does the program's work before it serves, without limits for callers.
func (s *service) begin(ctx context.Context) {
	must(0, s.prepare(ctx))
	must(0, s.assemble(ctx))
	s.api.Throttle, s.api.Gate = fair.NewThrottle(nil, nil, time.Now), fair.NewGate(fair.AtOnce{})
	must(0, s.load(ctx))
}

// inWorld runs a test in a bubble of time, with a provider with the world's cluster.
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, All)
		w.register()
		test(t, w)
	})
}

// start starts a replica on a store, like the program.
func (w *world) start(memory *storetest.Memory) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := newService(w.settings, w.role, memory)
	s.log = slog.New(slog.NewTextHandler(kubetest.Log{T: w.t}, nil))
	s.audit = slog.New(slog.NewJSONHandler(w.audit, nil))
	s.begin(ctx)
	s.clusters.Source, s.clusters.Dial = w.cluster, w.cluster.dial
	w.memory, w.service = memory, s
	all := func(*http.Request) (front.Caller, error) { return w.caller, nil }
	w.front = s.public(s.api.Direct(authenticate(all)))
	w.manager = s.api.BehindARM(authenticate(trusted))
	stopWork := s.work(ctx)
	w.drain = sync.OnceFunc(func() {
		if err := stopWork(ctx); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
		cancel()
	})
	w.kill = func() { memory.Kill(); cancel() }
	w.t.Cleanup(w.drain)
	pass(time.Second)
}

// another starts another replica of a provider, on the same store.
func (w *world) another(role Role) *world {
	w.t.Helper()
	other := *w
	other.role = role
	other.start(w.memory.Another())
	return &other
}

// authenticate is a front.Authenticator.
type authenticate func(*http.Request) (front.Caller, error)

func (a authenticate) Authenticate(r *http.Request) (front.Caller, error) { return a(r) }

// trusted takes every caller for Resource Manager.
func trusted(*http.Request) (front.Caller, error) { return front.Caller{Trusted: true}, nil }

// do sends a request; a header is given as "Name: value".
func (w *world) do(method, url, body string, headers ...string) *http.Response {
	return w.send(w.front, method, url, body, headers...)
}

func (w *world) send(to http.Handler, method, url, body string, headers ...string) *http.Response {
	recorder := httptest.NewRecorder()
	to.ServeHTTP(recorder, rptest.Request(method, url, body, headers...))
	return recorder.Result()
}

// must sends a request and fails the test unless the status is as wanted.
func (w *world) must(
	status int, method, url, body string, headers ...string,
) (*http.Response, string) {
	w.t.Helper()
	response := w.do(method, url, body, headers...)
	text := string(must(io.ReadAll(response.Body)))
	if response.StatusCode != status {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, url, response.StatusCode, status, text)
	}
	return response, text
}

func pass(d time.Duration) { kubetest.Pass(d) }

// shownNode reads a node out of an answer.
func shownNode(t testing.TB, text string) api.FlexNodeConfig {
	t.Helper()
	var n api.FlexNodeConfig
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return n
}

// path returns the path and query of a URL of the provider.
func path(url string) string { return strings.TrimPrefix(url, publicURL) }

// equal reports what is other than it should be.
func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

var has = rptest.Has

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
