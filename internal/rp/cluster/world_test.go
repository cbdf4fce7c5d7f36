package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

const (
	subscription = rptest.Subscription
	tenant       = rptest.Tenant
	factoryID    = rptest.ClusterID
	factory      = rptest.ClusterKey
	// harbour is a cluster of another team, in another subscription.
	harbourID = "/subscriptions/22222222-2222-3333-4444-555555555555/resourceGroups/Quay/" +
		"providers/Microsoft.ContainerService/managedClusters/Harbour"
	harbour = "22222222-2222-3333-4444-555555555555/quay/harbour"
)

func TestMain(m *testing.M) {
	kubetest.Warm()
	os.Exit(m.Run())
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// world is a replica of the provider with clusters, all in one bubble of time.
type world struct {
	t           testing.TB
	memory      *storetest.Memory
	store       *store.Store
	index       *store.Index
	credentials *credential.Service
	manager     *Manager
	source      *fakeSource
	audit       *rptest.Log
	events      rptest.Log // that the manager has counted
	owned       map[string]owner
	ends        map[string]func() // of owning, by key of the cluster
}

// fakeCluster is an API server that can be made unreachable.
type fakeCluster struct{ *kubetest.Cluster }

var errDown = kubetest.ErrDown

func newFakeCluster(name string) *fakeCluster {
	return &fakeCluster{kubetest.New(name,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: revokedName, Namespace: "kube-system"}},
		&admission.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: revokedName}})}
}

func (c *fakeCluster) connection() *Connection {
	return &Connection{
		Client: c, CA: testCA(), Version: c.Serves,
		ServerURL: "https://" + c.Name + ".example:6443",
	}
}

func testCA() []byte { return must(os.ReadFile("../flexnode/placeholder.pem")) }

// fakeSource returns fakes by key of the cluster.
type fakeSource struct {
	mu       sync.Mutex
	clusters map[string]*fakeCluster
	cut      atomic.Bool // from all of them
}

// Access implements Source.
func (f *fakeSource) Access(_ context.Context, c flexnode.Cluster, _ bool) (Access, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := keyOf(c.ID)
	if f.clusters[key] == nil {
		return Access{}, errDown
	}
	return Access{Fingerprint: fmt.Sprintf("%s %p", key, f.clusters[key])}, nil
}

// point makes the source of a cluster return a fake from now on.
func (f *fakeSource) point(key string, c *fakeCluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters[key] = c
}

func (f *fakeSource) dial(a Access) (*Connection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key, _, _ := strings.Cut(a.Fingerprint, " ")
	c := f.clusters[key].connection()
	version := c.Version
	c.Version = func(ctx context.Context) (string, error) {
		if f.cut.Load() {
			return "", errDown
		}
		return version(ctx)
	}
	return c, nil
}

// sourceOf is a source without a state.
type sourceOf func(context.Context, flexnode.Cluster) (Access, error)

// Access implements Source.
func (s sourceOf) Access(ctx context.Context, c flexnode.Cluster, _ bool) (Access, error) {
	return s(ctx, c)
}

// keyOf returns the key under which a cluster with an id is stored.
func keyOf(id string) string {
	parts := strings.Split(strings.ToLower(strings.Trim(id, "/")), "/")
	return parts[1] + "/" + parts[3] + "/" + parts[7]
}

// fakeOwner owns a cluster until a test changes that.
type fakeOwner struct {
	fence   store.Condition
	invalid atomic.Bool
	lost    chan struct{}
}

func (o *fakeOwner) Fence() store.Condition { return o.fence }
func (o *fakeOwner) Valid() bool            { return !o.invalid.Load() }
func (o *fakeOwner) Lost() <-chan struct{}  { return o.lost }

func newWorld(t testing.TB) *world {
	w := &world{t: t, audit: &rptest.Log{}, owned: map[string]owner{}, ends: map[string]func(){},
		source: &fakeSource{clusters: map[string]*fakeCluster{}}}
	w.start(storetest.NewMemory(), rptest.Ring())
	w.change(func(v *store.View) error {
		return w.store.Subscriptions.Put(v, subscription, flexnode.Subscription{
			State: "Registered", Properties: []byte(`{"tenantId":"` + tenant + `"}`)})
	})
	return w
}

// start starts a replica on a store.
func (w *world) start(memory *storetest.Memory, keys seal.Ring) {
	ctx, stop := context.WithCancel(context.Background())
	w.memory, w.store = memory, store.New(memory)
	w.index = store.NewIndex(w.store)
	must(0, w.index.Load(ctx))
	done := make(chan struct{})
	index := w.index
	go func() {
		defer close(done)
		index.Follow(ctx, func(error) {})
	}()
	w.t.Cleanup(func() { stop(); <-done })
	audit := slog.New(slog.NewJSONHandler(w.audit, nil))
	log := slog.New(slog.NewTextHandler(kubetest.Log{T: w.t}, nil))
	w.credentials = &credential.Service{
		Store: w.store, Keys: keys, Now: time.Now, Audit: audit, Log: log,
		Delivery: &credential.Handout{Store: w.store, Keys: keys, Now: time.Now,
			PublicURL: rptest.PublicURL},
	}
	w.manager = &Manager{
		Store: w.store, Index: w.index, Credentials: w.credentials, Source: w.source,
		Dial: w.source.dial, Installation: "here", TenantID: tenant, Renderer: "test",
		Log: log, Audit: audit, Heard: func(string) bool { return true },
		Membership: store.NewMembership(w.store, "alone"),
		Count:      func(event string) { fmt.Fprintln(&w.events, event) },
	}
}

// counted returns how often the manager has counted an event.
func (w *world) counted(event string) int { return strings.Count(w.events.String(), event+"\n") }

// change writes to the store, as handlers do.
func (w *world) change(decide func(*store.View) error) {
	must(w.store.Update(context.Background(), "", nil, decide))
}

// own makes the replica own a cluster until disown.
func (w *world) own(key string) *fakeOwner {
	row := "/test/owners/" + key
	revision := must(w.store.Commit(context.Background(), nil,
		[]store.Write{{Key: row, Value: []byte(uuid.NewString())}}))
	o := &fakeOwner{fence: store.Condition{Key: row, Revision: revision}, lost: make(chan struct{})}
	m := w.manager
	w.owned[key] = o
	unsubscribe := w.index.Subscribe(m.changed)
	m.assign(context.Background(), w.owned)
	w.ends[key] = sync.OnceFunc(func() {
		unsubscribe()
		delete(w.owned, key)
		m.assign(context.Background(), w.owned)
	})
	w.t.Cleanup(w.ends[key])
	return o
}

func (w *world) disown(key string) { w.ends[key]() }

// register registers a cluster whose API server is a fake.
func (w *world) register(id string, c *fakeCluster) {
	w.source.point(keyOf(id), c)
	w.change(func(v *store.View) error {
		return w.store.Clusters.Put(v, keyOf(id), flexnode.Cluster{
			ID: id, UID: uuid.NewString(), Location: "westeurope", Version: "1"})
	})
	synctest.Wait()
}

// registered returns a world whose cluster is registered.
func registered(t testing.TB) (*world, *fakeCluster) {
	w, c := newWorld(t), newFakeCluster("factory")
	w.register(factoryID, c)
	return w, c
}

// inFactory runs a test in a bubble of time, with a world whose cluster is owned and reached.
func inFactory(t *testing.T, test func(*testing.T, *world, *fakeCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, c := registered(t)
		w.own(factory)
		pass(time.Second)
		if got := w.cluster(factory); !got.Properties.Reachable || got.Facts == "" {
			t.Fatalf("the cluster was not reached: %+v", got)
		}
		test(t, w, c)
	})
}

// edit changes a row like another process.
func edit[T any](w *world, table store.Table[T], key string, with func(*T)) {
	w.change(func(v *store.View) error {
		row := table.Row(v, key)
		with(&row.Value)
		return table.Put(v, key, row.Value)
	})
}

func pass(d time.Duration) { kubetest.Pass(d) }

// withIdentity returns a node that joins with an identity in Azure.
func withIdentity(client string) flexnode.Desired {
	return flexnode.Desired{
		AzureAuth: flexnode.AzureAuth{Method: api.ManagedIdentity,
			ManagedIdentity: &flexnode.ManagedIdentityAuth{PrincipalID: client}},
		KubernetesAuth: flexnode.KubernetesAuth{UseAzureAuth: true},
	}
}

// put creates or changes a node of a cluster, with a URL, like a PUT.
func (w *world) put(clusterID, name string, d flexnode.Desired) {
	w.change(func(v *store.View) error { return w.putIn(v, clusterID, name, d) })
	synctest.Wait()
}

// token creates a node, and returns the id of its bootstrap token once that is in the cluster.
func (w *world) token(name string) string {
	w.put(factoryID, name, flexnode.Desired{})
	pass(time.Second)
	return w.credential(factory + "/" + name).Value.TokenID
}

// restore raises the epoch, as a restore does.
func (w *world) restore() {
	w.change(func(v *store.View) error { _, err := w.store.RaiseEpoch(v); return err })
}

// drop deletes a node.
func (w *world) drop(name string) {
	w.change(func(v *store.View) error {
		return w.credentials.RemoveNode(v, factory+"/"+name, true, time.Now())
	})
}

func (w *world) putIn(v *store.View, clusterID, name string, d flexnode.Desired) error {
	key := keyOf(clusterID) + "/" + name
	cluster := w.store.Clusters.Row(v, keyOf(clusterID))
	parent := flexnode.Parent{Cluster: cluster.Value,
		FactsLayer: must(w.store.Layer(v.Context(), cluster.Value.Facts))}
	var old *flexnode.Node
	var last *flexnode.Revision
	history := must(w.store.History.In(v, key)).Value
	if row := must(w.store.Nodes.In(v, key)); row.Exists() {
		old = &row.Value
		last = must(history.Find(old.Revision))
	}
	ask := flexnode.Put{
		ID: clusterID + "/flexNodeConfig/" + name, Desired: d, URL: true, At: time.Now(),
		NewUID: uuid.NewString(), Renderer: "test",
	}
	status := must(w.store.Status.In(v, key)).Value
	ask.Joins = !d.ContinuousMonitoring || status.Applied() == 0
	decision, problems := flexnode.Decide(ask, old, last, nil, parent, flexnode.Secret{})
	if p := cluster.Value.Properties; decision.NeedsSubnet {
		slot, subnet, _ := flexnode.Slot(keyOf(clusterID), key, p.PodCIDR, p.NodeCIDRMask, 0)
		must(0, w.store.PodCIDRs.Put(v, slot, key))
		ask.Subnet = subnet
		decision, problems = flexnode.Decide(ask, old, last, nil, parent, flexnode.Secret{})
	}
	if len(problems) > 0 {
		return problems
	}
	n := decision.Node
	must(0, w.credentials.Issue(v, key, &n))
	if decision.Revision != nil {
		must(0, w.credentials.Sign(v, n.UID, decision.Revision, nil))
		must(0, w.store.History.Put(v, key, history.With(*decision.Revision, n.Assigned)))
	}
	return w.store.Nodes.Put(v, key, n)
}

func (w *world) cluster(key string) flexnode.Cluster {
	return must(w.store.Clusters.Get(context.Background(), key)).Value
}

func (w *world) node(key string) flexnode.Node {
	return must(w.store.Nodes.Get(context.Background(), key)).Value
}

// credential returns the credential that a node refers to.
func (w *world) credential(node string) store.Row[store.Credential] {
	return must(w.store.Credentials.Get(context.Background(), w.node(node).Credential))
}

func (w *world) ready(node string) api.Condition {
	row := must(w.store.Status.Get(context.Background(), node))
	if row.Value.Ready == nil {
		return api.Condition{}
	}
	return *row.Value.Ready
}

// warns checks whether the registration of the factory has a warning with a text.
func (w *world) warns(when, text string, want bool) {
	w.t.Helper()
	if got := w.cluster(factory).Probe.Message(); strings.Contains(got, text) != want {
		w.t.Errorf("%s: the message is %q; with %q: %t", when, got, text, want)
	}
}

// secrets returns the names of the bootstrap tokens in the cluster.
func (c *fakeCluster) secrets() (names []string) {
	for _, s := range c.Secrets() {
		names = append(names, s.Name)
	}
	return names
}

// rows counts all rows below a prefix of a table.
func (w *world) rows(prefix string) int {
	return len(must(w.store.Scan(context.Background(), prefix, "", 100_000, 0)).KVs)
}

// killable is a replica that owns the factory, and that is killed after its n-th effect once it is
// armed; 0 is never.
type killable struct {
	*world
	n     int
	owner *fakeOwner
	armed atomic.Bool
	done  atomic.Int64
}

// did counts effects; one without a name is the test's own.
func (k *killable) did(what string) {
	if k.armed.Load() && what != "" && k.done.Add(1) == int64(k.n) {
		k.memory.Kill()
		k.owner.invalid.Store(true)
	}
}

// restart starts another replica in place of a killed one; it owns nothing yet.
func (k *killable) restart() {
	k.disown(factory)
	k.start(k.memory.Another(), k.credentials.Keys)
}

// killedAnywhere runs a test in which a replica is killed after its n-th effect, for each n up to
// the number of its effects, which must be least or more.
func killedAnywhere(t *testing.T, least int, run func(*testing.T, *killable, *fakeCluster)) {
	t.Helper()
	killedAt := func(t *testing.T, n int) (did int) {
		synctest.Test(t, func(t *testing.T) {
			w, c := registered(t)
			k := &killable{world: w, n: n}
			w.store.Did = k.did
			k.owner = w.own(factory)
			pass(time.Second)
			run(t, k, c)
			did = int(k.done.Load())
		})
		return did
	}
	points := killedAt(t, 0)
	if points < least {
		t.Fatalf("only %d things are done", points)
	}
	for n := 1; n <= points; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) { killedAt(t, n) })
	}
}

// equal reports a value that differs from the expected one.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
