package flexnode

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
)

const (
	subscription  = "11111111-2222-3333-4444-555555555555"
	subscription2 = "22222222-2222-3333-4444-555555555555"
	tenant        = "99999999-0000-0000-0000-000000000000"
	clientA       = "aaaaaaaa-0000-0000-0000-00000000000a"
	clientB       = "aaaaaaaa-0000-0000-0000-00000000000b"
	cluster       = "/subscriptions/" + subscription +
		"/resourceGroups/Edge/providers/Microsoft.ContainerService/managedClusters/Factory"
	nodeID = cluster + "/flexNodeConfig/Edge-1"
)

var has, shows = rptest.Has, rptest.Shows

const minute, hour, day = time.Minute, time.Hour, 24 * time.Hour

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// expect reports what is other than it should be.
func expect[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// parsed returns a configuration as the agent parses it.
func parsed(text []byte) config.Config { return must(config.Parse(text, anyHost())).Config }

func someFacts() Facts {
	return Facts{
		ServerURL:    "https://factory.example:6443",
		CACertData:   base64.StdEncoding.EncodeToString(placeholderCA),
		DNSServiceIP: "10.96.0.10", TenantID: tenant, Location: "westeurope",
	}
}

// world is one node and its cluster, with the history that a store would keep.
type world struct {
	t        testing.TB
	node     *Node
	history  History
	stone    *Tombstone
	parent   Parent
	layers   map[string]*Layer
	secret   string // stored
	version  int64  // of the stored secret
	now      time.Time
	uids     int
	runs     bool  // the node runs and follows: Admit decides its offer, unless it is Settled
	reported int64 // the version that its agent reports to run
}

func pods(most int) Desired { return Desired{NodeConfig: NodeConfig{MaxPods: most}} }

func kubernetes(version string) Desired {
	return Desired{Versions: Versions{Kubernetes: version}}
}

// asPrincipal returns a node that follows its resource, with the identity of an application.
func asPrincipal(client, secret string) Desired {
	return Desired{ContinuousMonitoring: true, AzureAuth: AzureAuth{
		Method: api.ServicePrincipal,
		ServicePrincipal: &ServicePrincipalAuth{
			ClientID: client, ClientSecret: secret, ClientTenant: tenant,
		},
	}}
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, layers: map[string]*Layer{}, now: time.Unix(1_800_000_000, 0),
		parent: Parent{Cluster: Cluster{ID: cluster, Location: "westeurope"}},
	}
	w.reach(someFacts(), "1.35.4")
	w.defaults(nil)
	return w
}

// reach sets the cluster's facts.
func (w *world) reach(f Facts, version string) {
	layer := FactsLayer(f, cluster)
	w.parent.FactsLayer, w.parent.Cluster.Facts = layer, layer.ID
	w.parent.Cluster.Properties.KubernetesVersion = version
	w.layers[layer.ID] = layer
}

// moves gives the cluster another URL of its API server.
func (w *world) moves(serverURL, version string) {
	f := someFacts()
	f.ServerURL = serverURL
	w.reach(f, version)
}

// pool sets the network of pod subnets.
func (w *world) pool(network string, mask int) {
	w.parent.Cluster.Properties.PodCIDR, w.parent.Cluster.Properties.NodeCIDRMask = network, mask
}

// unreached removes them, as if the cluster had never been reached.
func (w *world) unreached() {
	w.parent.FactsLayer, w.parent.Cluster.Facts = nil, ""
	w.parent.Cluster.Properties.KubernetesVersion = ""
}

func (w *world) defaults(d map[string]any) {
	layer := DefaultsLayer(d)
	w.parent.Defaults, w.layers[layer.ID] = layer, layer
}

func (w *world) last() *Revision {
	if w.node == nil {
		return nil
	}
	return must(w.history.Find(w.node.Revision))
}

// decide decides on a PUT of an owner, perhaps with a client secret.
func (w *world) decide(d Desired) (Decision, Problems) {
	wanted, secret := WithoutSecret(d)
	known := Secret{Version: w.version, Known: w.secret != "", Same: secret == w.secret}
	p := Put{
		ID: nodeID, Desired: wanted, SecretGiven: secret != "", By: "ops", ByType: "User",
		At: w.now, NewUID: fmt.Sprintf("uid%d-rest", w.uids), Renderer: "v1", Joins: !w.runs,
	}
	if w.node != nil {
		p.Offered = must(w.history.Find(w.node.Assigned))
		p.Running = w.running()
	}
	got, problems := Decide(p, w.node, w.last(), w.stone, w.parent, known)
	if len(problems) > 0 {
		return got, problems
	}
	if got.NeedsSubnet {
		pool := w.parent.Cluster.Properties
		_, subnet, _ := Slot("c", nodeName(nodeID), pool.PodCIDR, pool.NodeCIDRMask, 0)
		p.Subnet = subnet
		got, problems = Decide(p, w.node, w.last(), w.stone, w.parent, known)
	}
	if got.StoreSecret {
		w.secret, w.version = secret, got.Node.SecretVersion
	}
	if got.DropSecret {
		w.secret, w.version = "", 0
	}
	return got, problems
}

// asks decides on a PUT without a client secret, and keeps nothing.
func (w *world) asks(p Put) (Decision, Problems) {
	return Decide(p, w.node, w.last(), nil, w.parent, Secret{})
}

// effect says what a decision does.
func effect(d Decision) string {
	var all []string
	for _, one := range []struct {
		what string
		does bool
	}{
		{"changes", d.Changed}, {"writes", d.Write}, {"renders", d.Revision != nil},
		{"offers", d.Offered != nil}, {"stores", d.StoreSecret}, {"drops", d.DropSecret},
	} {
		if one.does {
			all = append(all, one.what)
		}
	}
	return strings.Join(all, " ")
}

// running returns the configurations that the node may run, none if one of them is not kept.
func (w *world) running() (all []object) {
	for _, version := range w.node.MayRun(w.reported) {
		r := must(w.history.Find(version))
		if r == nil {
			return nil
		}
		all = append(all, w.whole(r, Grants{}))
	}
	return all
}

// put decides and keeps the result.
func (w *world) put(d Desired) Decision {
	w.t.Helper()
	got, problems := w.decide(d)
	if len(problems) > 0 {
		w.t.Fatalf("refused: %v", problems)
	}
	if got.Offered != nil {
		w.history = w.history.With(*got.Offered, got.Node.Assigned)
	}
	w.keep(got.Node, got.Revision)
	return got
}

func (w *world) keep(n Node, r *Revision) {
	w.node, w.stone = &n, nil
	if r != nil {
		w.history = w.history.With(*r, n.Assigned)
	}
}

func (w *world) refresh() *Revision {
	applied := int64(0)
	if w.runs {
		applied = w.node.Assigned
	}
	n, r := Refresh(*w.node, w.last(), w.parent, w.now, "v1", applied, !w.runs)
	w.keep(n, r)
	return r
}

// remove deletes the node.
func (w *world) remove() {
	n := w.node
	w.stone = &Tombstone{UID: n.UID, Revision: max(n.Revision, n.Floor)}
	w.node, w.history, w.secret, w.version = nil, History{}, "", 0
	w.uids++
}

// whole returns the configuration that a revision renders to, config its text without secrets.
func (w *world) whole(r *Revision, secrets Grants) object {
	return must(Config(*r, w.layers[r.Defaults], w.layers[r.Facts], secrets))
}

func (w *world) config(r *Revision) string { return string(encode(w.whole(r, Grants{}))) }

// generator makes random values; the seed of a failure is in its log, and FLEXNODE_SEED repeats it.
func generator(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("FLEXNODE_SEED"); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))
	}
	t.Logf("FLEXNODE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// repeat tries a random case n times, each in a new world, until one fails.
func repeat(t *testing.T, n int, try func(g *rand.Rand, w *world)) {
	t.Helper()
	g := generator(t)
	for range n {
		if try(g, newWorld(t)); t.Failed() {
			return
		}
	}
}

func pick[T any](g *rand.Rand, from ...T) T { return from[g.IntN(len(from))] }

// randomDesired returns valid settings of an owner, with any of the methods of authentication.
func randomDesired(g *rand.Rand) Desired {
	d := Desired{
		Versions: Versions{
			Kubernetes: pick(g, "", "", "1.34.4", "v1.35.0"), Containerd: pick(g, "", "2.1.9"),
			Runc: pick(g, "", "", "1.3.3"), CNI: pick(g, "", "1.8.0"), NPD: pick(g, "", "1.34.0"),
		},
		NodeConfig: NodeConfig{
			MaxPods: pick(g, 0, 30, 110), Taints: pick(g, nil, []string{"edge=true:NoSchedule"}),
			Labels: pick(g, nil, map[string]string{"environment": "prod", "a.b/c": ""}),
			Kubelet: Kubelet{
				KubeReserved: pick(g, nil, map[string]string{"cpu": "100m"}),
				EvictionHard: pick(g, nil, map[string]string{"memory.available": "100Mi"}),
				Verbosity:    pick(g, nil, new(0), new(4)), NodeIP: pick(g, "", "192.0.2.7"),
				ImageGCHighThreshold: pick(g, nil, new(90)),
				ImageGCLowThreshold:  pick(g, nil, new(0), new(70)),
			},
		},
	}
	d.DriftPolicy = pick(g, "", "report", "repair")
	d.DriftPolicies = pick(g, nil, map[string]string{"path": "repair", "node": "off"})
	d.UpgradePolicy = pick(g, UpgradePolicy{}, UpgradePolicy{
		Drain: "always", Deadline: "PT30M",
		DrainOptions: DrainOptions{Force: new(true)}, MaintenanceWindow: &MaintenanceWindow{
			Days: []string{"Sunday"}, Start: "02:00", Duration: "PT4H",
		},
	})
	d.Network.Metadata = pick(g, "", "block", "allow")
	d.Monitoring = pick(g, Monitoring{}, Monitoring{Endpoint: "https://rp.example"})
	randomAuth(g, &d)
	return d
}

func randomAuth(g *rand.Rand, d *Desired) {
	auth := &d.AzureAuth
	auth.Method = pick(g, "", api.BootstrapToken, api.ServicePrincipal, api.ManagedIdentity,
		api.Arc)
	switch auth.Method {
	case "", api.BootstrapToken:
		return
	case api.ServicePrincipal:
		auth.ServicePrincipal = &ServicePrincipalAuth{
			ClientID: pick(g, clientA, clientB), ClientTenant: pick(g, "", tenant),
			ClientSecret: pick(g, "a-secret", "b-secret"),
		}
	case api.ManagedIdentity:
		auth.ManagedIdentity = &ManagedIdentityAuth{ClientID: pick(g, clientA, clientB)}
	case api.Arc:
		machine := "/resourceGroups/Arc/providers/Microsoft.HybridCompute/machines/M-1"
		auth.Arc = pick(g, nil, &ArcAuth{}, &ArcAuth{
			MachineResourceID: "/subscriptions/" + subscription + machine,
		})
	}
	auth.Registries = pick(g, nil, []string{"contoso.azurecr.io", "*.azurecr.us"})
	d.KubernetesAuth.UseAzureAuth = pick(g, true, false)
	if d.KubernetesAuth.UseAzureAuth && auth.Arc != nil && pick(g, true, false) {
		auth.Arc = &ArcAuth{
			MachineResourceID: auth.Arc.MachineResourceID, AutoRoleAssignment: pick(g, true, false),
			Onboarding: &ServicePrincipalAuth{
				ClientID: pick(g, clientA, clientB), ClientTenant: pick(g, "", tenant),
				ClientSecret: pick(g, "a-secret", "b-secret"),
			},
		}
	}
	if d.KubernetesAuth.UseAzureAuth {
		d.KubernetesAuth.KubeletCredential = pick(g, "", "token", "certificate")
	}
	d.ContinuousMonitoring = !d.KubernetesAuth.UseAzureAuth || pick(g, true, false)
}

// withoutSecret returns an owner's settings, as a GET shows them.
func withoutSecret(d Desired) Desired {
	d, _ = WithoutSecret(d)
	return d
}
