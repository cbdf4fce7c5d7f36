package credential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

const (
	clusterID  = rptest.ClusterID
	clusterKey = rptest.ClusterKey
	nodeKey    = clusterKey + "/edge-1"
	public     = rptest.PublicURL
)

// world is a store with a cluster, and the provider's work with both.
type world struct {
	t       testing.TB
	memory  *storetest.Memory
	service *Service
	handout *Handout
	cluster *fakeCluster
	clock   *rptest.Clock
	keys    seal.Ring
	audit   *rptest.Log
	version int64
}

// fakeCluster holds the Secrets of bootstrap tokens by id. at is called before and after each
// effect, and its error is the effect's.
type fakeCluster struct {
	secrets map[string]fakeSecret
	down    error
	at      func(what string) error
}

func nothing(string) error { return nil }

type fakeSecret struct {
	owner, token string
	expires      time.Time
}

// Create implements Tokens.
func (c *fakeCluster) Create(
	_ context.Context, row store.Credential, key, token string,
) (told string, err error) {
	if err := c.at("before Secret made"); err != nil {
		return "", err
	}
	switch there, found := c.secrets[row.TokenID]; {
	case c.down != nil:
		return toldDown, c.down
	case found && there.owner == "another":
		return "", ErrTaken
	case !found:
		c.secrets[row.TokenID] = fakeSecret{key, token, row.Expires}
	}
	return "", c.at("after Secret made")
}

// Remove implements Tokens.
func (c *fakeCluster) Remove(_ context.Context, row store.Credential) error {
	if err := c.at("before Secret gone"); err != nil {
		return err
	}
	if c.down != nil {
		return c.down
	}
	if c.secrets[row.TokenID].owner != "another" {
		delete(c.secrets, row.TokenID)
	}
	return c.at("after Secret gone")
}

// errDown is reported as toldDown, without the address in it.
var errDown = errors.New("dial tcp 10.1.2.3:6443: refused")

const toldDown = "The cluster does not answer."

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, memory: storetest.NewMemory(), clock: rptest.NewClock(), audit: &rptest.Log{},
		version: 1700000000,
		cluster: &fakeCluster{secrets: map[string]fakeSecret{}, at: nothing},
		keys:    rptest.Ring(),
	}
	w.start(w.memory)
	w.follow()
	w.change(func(v *store.View) error {
		c := flexnode.Cluster{ID: clusterID, UID: "c", APIServer: "a", Location: "westeurope"}
		c.Facts = w.facts(v, "https://factory.example:6443")
		return w.store().Clusters.Put(v, clusterKey, c)
	})
	return w
}

// beside returns a world for a parallel test.
func beside(t *testing.T) *world {
	t.Parallel()
	return newWorld(t)
}

// live returns a world with a node whose credential is live.
func live(t *testing.T) *world {
	w := beside(t)
	must(0, created(w))
	return w
}

// follow makes the replica follow changes until the test ends.
func (w *world) follow() {
	ctx, stop := context.WithCancel(w.t.Context())
	index, done := store.NewIndex(w.store()), make(chan struct{}) // of this store, not the next one
	go func() {
		defer close(done)
		index.Follow(ctx, func(error) {})
	}()
	w.t.Cleanup(func() { stop(); <-done })
}

// start starts a replica on a connection to the store, as after a restart.
func (w *world) start(m *storetest.Memory) {
	st := store.New(m)
	w.memory = m
	w.handout = &Handout{Store: st, Keys: w.keys, PublicURL: public, Now: w.clock.Now}
	w.service = &Service{
		Store: st, Keys: w.keys, Delivery: w.handout, Now: w.clock.Now,
		Audit: slog.New(slog.NewJSONHandler(w.audit, nil)), Log: slog.New(slog.DiscardHandler),
	}
}

func (w *world) store() *store.Store { return w.service.Store }

// another returns another replica of the provider.
func (w *world) another() *world {
	other := *w
	other.start(w.memory.Another())
	return &other
}

// facts writes the facts that nodes receive of the cluster, and returns the id of the layer.
func (w *world) facts(v *store.View, server string) string {
	ca := must(os.ReadFile("../flexnode/placeholder.pem"))
	layer := flexnode.FactsLayer(flexnode.Facts{
		ServerURL: server, DNSServiceIP: "10.0.0.10", Location: "westeurope",
		TenantID:   "99999999-0000-0000-0000-000000000000",
		CACertData: base64.StdEncoding.EncodeToString(ca),
	}, clusterID)
	must(0, w.store().KeepLayer(v, layer))
	return layer.ID
}

// update writes to the store like a handler.
func (w *world) update(decide func(*store.View) error) error {
	_, err := w.store().Update(w.t.Context(), "change", nil, decide)
	return err
}

func (w *world) change(decide func(*store.View) error) { must(0, w.update(decide)) }

// edit changes a row like another process.
func edit[T any](w *world, table store.Table[T], key string, with func(*T)) {
	w.change(func(v *store.View) error {
		row := table.Row(v, key)
		with(&row.Value)
		return table.Put(v, key, row.Value)
	})
}

// get returns a row of a table.
func get[T any](w *world, table store.Table[T], key string) store.Row[T] {
	return must(table.Get(w.t.Context(), key))
}

// list returns all rows of a table.
func list[T any](w *world, table store.Table[T]) []store.Row[T] {
	rows, _, err := table.List(w.t.Context(), "")
	return must(rows, err)
}

func (w *world) credential(key string) store.Credential {
	return get(w, w.store().Credentials, key).Value
}

func (w *world) node() flexnode.Node { return get(w, w.store().Nodes, nodeKey).Value }

// The kinds of nodes.
var (
	withToken = flexnode.Desired{
		AzureAuth:  flexnode.AzureAuth{Method: api.BootstrapToken},
		NodeConfig: flexnode.NodeConfig{MaxPods: 40},
	}
	withPrincipal = flexnode.Desired{
		AzureAuth: flexnode.AzureAuth{Method: api.ServicePrincipal,
			ServicePrincipal: &flexnode.ServicePrincipalAuth{
				ClientID: "22222222-0000-0000-0000-000000000000"}},
		KubernetesAuth: flexnode.KubernetesAuth{UseAzureAuth: true}, ContinuousMonitoring: true,
	}
)

func labelled(d flexnode.Desired, label string) flexnode.Desired {
	d.NodeConfig.Labels = map[string]string{"example.com/l": label}
	return d
}

// put writes the rows of a PUT of the node, which is not rendered if the cluster was never reached.
func (w *world) put(d flexnode.Desired, url, reached bool) error {
	w.version++
	version := w.version
	return w.update(func(v *store.View) error {
		old := w.store().Nodes.Row(v, nodeKey)
		n := old.Value
		if !old.Exists() {
			n = flexnode.Node{UID: fmt.Sprintf("%08x-uid", version), State: api.Creating}
		}
		n.ID, n.Desired, n.Identity = clusterID+"/flexNodeConfig/Edge-1", d, "app:t/c"
		if reached {
			must(0, w.rendered(v, &n, version))
		}
		if url {
			must(0, w.service.Issue(v, nodeKey, &n))
		} else {
			must(0, w.service.Revoke(v, n.Credential, false))
			n.Credential, n.State = "", ""
		}
		return w.store().Nodes.Put(v, nodeKey, n)
	})
}

// rendered writes a new revision of a node.
func (w *world) rendered(v *store.View, n *flexnode.Node, version int64) error {
	cluster := w.store().Clusters.Row(v, clusterKey)
	n.Chosen.Versions = flexnode.Versions{
		Kubernetes: "1.35.4", Containerd: "2.2.1", Runc: "1.3.3", CNI: "1.8.0", NPD: "1.35.1",
	}
	if n.Desired.AzureAuth.ServicePrincipal != nil {
		n.SecretVersion = 1
		must(0, w.service.KeepSecret(v, nodeKey, "hush-hush", 1))
	}
	n.Revision, n.Assigned, n.Facts = version, version, cluster.Value.Facts
	history := w.store().History.Row(v, nodeKey)
	r := flexnode.Revision{
		Version: version, Facts: n.Facts, Own: flexnode.OwnLayer(*n), Desired: &n.Desired,
		SecretVersion: n.SecretVersion, Created: w.clock.Now(), Why: "put",
	}
	must(0, w.service.Sign(v, n.UID, &r, nil))
	return w.store().History.Put(v, nodeKey, history.Value.With(r, n.Assigned))
}

// updateNode writes the rows of a change of the node, if it is there.
func (w *world) updateNode(with func(*store.View, *flexnode.Node)) error {
	return w.update(func(v *store.View) error {
		row := w.store().Nodes.Row(v, nodeKey)
		if !row.Exists() {
			return nil
		}
		with(v, &row.Value)
		return w.store().Nodes.Put(v, nodeKey, row.Value)
	})
}

// regenerate writes the rows of regenerateToken.
func (w *world) regenerate() error {
	return w.updateNode(func(v *store.View, n *flexnode.Node) {
		must(0, w.service.Issue(v, nodeKey, n))
	})
}

// delete writes the rows of a DELETE of the node.
func (w *world) delete() error {
	return w.update(func(v *store.View) error {
		return w.service.RemoveNode(v, nodeKey, true, w.clock.Now())
	})
}

// step makes the reconciler work on all credentials once.
func (w *world) step() error {
	ctx := w.t.Context()
	rows, _, err := w.store().Credentials.List(ctx, "")
	errs := []error{err}
	for _, row := range rows {
		_, err := w.service.Step(ctx, row.Key, w.cluster, store.Condition{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// work makes the reconciler work until nothing is left to do.
func (w *world) work() {
	for range 4 {
		must(0, w.step())
	}
}

// get sends a GET of a configuration by its URL.
func (w *world) get(url string) (int, string) {
	recorder := httptest.NewRecorder()
	w.handout.ServeHTTP(recorder, rptest.Request("GET", strings.TrimPrefix(url, public), ""))
	return recorder.Code, recorder.Body.String()
}

// answers checks the status of a GET of a configuration.
func (w *world) answers(what, url string, want int) {
	w.t.Helper()
	status, _ := w.get(url)
	equal(w.t, what, status, want)
}

// url returns the URL of the node's credential; "" for none.
func (w *world) url() string {
	u := must(w.service.URL(w.t.Context(), w.node().Credential))
	if u == nil {
		return ""
	}
	return u.ConfigURL
}

// bundle reads a configuration and its resource like the agent.
func bundle(t testing.TB, text string) (config.Config, api.BundleResource) {
	t.Helper()
	loaded, err := config.Parse([]byte(text), config.Host{HostName: "x", Arch: "amd64"})
	if err != nil {
		t.Fatalf("the agent does not take the bundle: %v\n%s", err, text)
	}
	var b api.Bundle
	must(0, json.Unmarshal([]byte(text), &b))
	return loaded.Config, b.Resource
}

// consistent checks that cluster, store and URLs agree, when nothing is left to do.
func (w *world) consistent(urls []string) {
	w.t.Helper()
	node := get(w, w.store().Nodes, nodeKey)
	live := map[string]bool{}
	tokens, secrets, remembered := map[string]string{}, map[string]string{}, map[string]string{}
	for _, c := range list(w, w.store().Credentials) {
		equal(w.t, "a credential is left", c.Value.State, store.Live)
		equal(w.t, "its node has", node.Value.Credential, c.Key)
		live[c.Key] = true
		if c.Value.TokenID != "" {
			tokens[c.Value.TokenID] = c.Key
		}
	}
	if node.Value.Credential != "" && len(live) == 0 {
		w.t.Errorf("the node refers to %s, which is not there", node.Value.Credential)
	}
	if node.Exists() && node.Value.State != "" {
		w.t.Errorf("the node is left %s: %s", node.Value.State, node.Value.Reason)
	}
	for id, secret := range w.cluster.secrets {
		secrets[id] = secret.owner
	}
	for _, row := range list(w, w.store().Tokens) {
		remembered[flexnode.LastOf(row.Key)] = row.Value
	}
	equal(w.t, "the Secrets of tokens", fmt.Sprint(secrets), fmt.Sprint(tokens))
	equal(w.t, "the tokens that are remembered", fmt.Sprint(remembered), fmt.Sprint(tokens))
	bundles := map[string]bool{}
	for _, b := range list(w, w.store().Bundles) {
		bundles[b.Key] = true
	}
	equal(w.t, "the bundles", fmt.Sprint(bundles), fmt.Sprint(live))
	for _, u := range urls {
		status, _ := w.get(u)
		key := strings.TrimSuffix(strings.TrimPrefix(must(url.Parse(u)).Path, HandoutPath), ".json")
		equal(w.t, "a URL works", status == http.StatusOK, live[key])
	}
}

// revokedWhy is the reason for the owner of a node whose credential was revoked while it was made.
// The node is not Failed for that: it has its configuration, and may run.
const revokedWhy = "revoked before it could be made"

// equal reports a value that differs from the expected one.
func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}
