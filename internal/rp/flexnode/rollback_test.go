package flexnode

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// rollBack decides on a rollback, and keeps the result.
func (w *world) rollBack(to int64) (Decision, error) {
	ask := Rollback{
		To: must(w.history.Find(to)), Desired: w.last(), Parent: w.parent, By: "ops", At: w.now,
		Secret: Secret{Version: w.version, Known: w.secret != ""}, Joins: !w.runs,
		Running: w.running(),
	}
	ask.Parent.Defaults = w.layers[ask.To.Defaults]
	d, err := RollBack(ask, *w.node)
	if err != nil {
		return d, err
	}
	if d.DropSecret {
		w.secret, w.version = "", 0
	}
	w.keep(d.Node, d.Revision)
	return d, nil
}

// After a rollback the node has its previous settings; a PUT of them, or another rollback, is a
// no-op.
func TestRollBack(t *testing.T) {
	repeat(t, 300, func(g *rand.Rand, w *world) {
		configs := map[int64]string{}
		for range 2 + g.IntN(8) {
			w.now = w.now.Add(time.Duration(g.IntN(100)) * time.Second)
			if d, problems := w.decide(randomDesired(g)); len(problems) == 0 {
				w.keep(d.Node, d.Revision)
				configs[w.node.Revision] = w.config(w.last())
			}
		}
		if w.node == nil {
			return
		}
		to, before := pick(g, must(w.history.All())...), w.node.Revision
		d, err := w.rollBack(to.Version)
		if e, refused := errors.AsType[*arm.Error](err); refused {
			if to.SecretVersion == 0 || to.SecretVersion == w.version {
				t.Fatalf("%v, although its secret is kept", e)
			}
			return
		}
		must(0, err)
		expect(t, "the configuration", w.config(w.last()), configs[to.Version])
		if d.Revision != nil && d.Revision.Version <= before {
			t.Fatalf("version %d after %d", d.Revision.Version, before)
		}
		shown := Shown(*w.node, nil, nil, nil).Properties.Desired
		put, problems := w.decide(desiredOf(shown))
		shows(t, "what a PUT of what is shown does", "0 ", len(problems), effect(put))
		again := must(w.rollBack(to.Version))
		expect(t, "what another rollback does", effect(again), "")
	})
}

// A rollback gives the node the present facts of its cluster, and keeps its defaults.
func TestRollBackKeepsFacts(t *testing.T) {
	w := newWorld(t)
	w.defaults(object{"proxy": object{"https": "http://one.example:3128"}})
	w.put(Desired{})
	first := w.node.Revision
	w.defaults(nil)
	w.moves("https://moved.example:6443", "1.35.4")
	w.put(pods(50))
	must(w.rollBack(first))
	c := w.whole(w.last(), Grants{})
	shows(t, "the API server, the pods, and the proxy",
		"https://moved.example:6443 110 http://one.example:3128",
		in(c, "node", "kubelet", "serverURL"), in(c, "node", "maxPods"), in(c, "proxy", "https"))
}

func TestRollBackIsRefused(t *testing.T) {
	secret := func(s string) Desired {
		d := typical()
		d.AzureAuth.ServicePrincipal.ClientSecret = s
		return d
	}
	for name, test := range map[string]struct {
		first, second Desired
		cluster, want string // its version then, and the error's code and places
	}{
		"another secret":     {secret("a"), secret("b"), "1.35.4", "SecretNotKept"},
		"no secret any more": {secret("a"), Desired{}, "1.35.4", "SecretNotKept"},
		"a cluster that has moved on": {kubernetes("1.34.4"), kubernetes("1.35.4"), "1.39.0",
			"properties.versions.kubernetes"},
	} {
		w := newWorld(t)
		w.put(test.first)
		first := w.node.Revision
		w.put(test.second)
		w.reach(someFacts(), test.cluster)
		_, err := w.rollBack(first)
		e, _ := errors.AsType[*arm.Error](err)
		problems, _ := errors.AsType[Problems](err)
		expect(t, name, cmp.Or(e, &arm.Error{}).Code+targets(problems), test.want)
	}
}

func TestDiff(t *testing.T) {
	from := object{
		"same": object{"a": json.Number("1")}, "gone": object{"x": "y", "n": json.Number("7")},
		"node": object{"maxPods": json.Number("30"), "labels": object{"a.b/c": "old", "k": "v"},
			"taints": []any{"a=b:NoSchedule"}},
		"kind": "text",
	}
	to := object{
		"same": object{"a": json.Number("1")}, "node": object{
			"maxPods": json.Number("50"), "labels": object{"a.b/c": "new", "k": "v"},
			"taints": []any{"a=b:NoSchedule", "c:NoExecute"}},
		"kind": object{"now": true},
	}
	s := func(text string) *string { return &text }
	want := api.Diff{Disruption: "restart", Changes: []api.Change{
		{Path: "gone.n", From: s("7"), Disruption: "restart"},
		{Path: "gone.x", From: s("y"), Disruption: "restart"},
		{Path: "kind", From: s("text"), To: s(`{"now":true}`), Disruption: "restart"},
		{Path: `node.labels["a.b/c"]`, From: s("old"), To: s("new"), Disruption: "none"},
		{Path: "node.maxPods", From: s("30"), To: s("50"), Disruption: "restart"},
		{Path: "node.taints", From: s(`["a=b:NoSchedule"]`),
			To: s(`["a=b:NoSchedule","c:NoExecute"]`), Disruption: "none"},
	}}
	expect(t, "the difference", Diff(from, to), want)
	expect(t, "from itself", Diff(to, to), api.Diff{Disruption: "none", Changes: []api.Change{}})
	minor := func(v string) object { return object{"kubernetes": object{"version": v}} }
	expect(t, "another minor version", Diff(minor("1.34.4"), minor("1.35.0")).Disruption, "drain")
	subnet := object{"cni": object{"podCIDR": "10.244.3.0/24"}}
	expect(t, "a pod subnet", Diff(minor("1.34.4"), subnet).Disruption, "drain")
}

func TestChangeOf(t *testing.T) {
	from := object{"node": object{"maxPods": 110, "labels": object{"a": "b"}}}
	c := ChangeOf(from, object{"node": object{"maxPods": 60}, "agent": object{"x": 1}})
	shows(t, "the settings, and the id", "[node.maxPods=60] 12", c.Settings, len(c.ID))
	other := ChangeOf(nil, object{"node": object{"maxPods": 60}})
	expect(t, "the same change from elsewhere", other.ID, c.ID)
	expect(t, "the change of labels", ChangeOf(from, object{"node": object{"maxPods": 110}}).ID, "")
}

// restarts returns what a joined agent restarts units for, to get to another configuration. The
// unit that loads packet rules disturbs no pod.
func restarts(from, to object) []string {
	desired := func(whole object) state.Desired {
		return node.Bind(node.Render(parsed(encode(whole)), node.Facts{}), node.Bindings{
			Server: "https://api.example", CA: "CA", PodCIDRs: []string{"10.244.3.0/24"}, Joined: true,
			Program: "/usr/bin/aks-flex-node",
		})
	}
	seen := state.Observed{}
	before, after := desired(from), desired(to)
	for _, item := range slices.Concat(after, before) {
		seen[item.Resource.Key()] = item.Resource
	}
	var all []string
	for _, c := range state.Diff(after, nil, seen, state.Ledger{}) {
		key := fmt.Sprint(c.To.Key())
		if (c.Restart || len(c.Owes) > 0) && !strings.Contains(key, "metadata.") {
			all = append(all, key)
		}
	}
	return all
}

// TestUndisturbing compares the table of settings that restart nothing with the agent's own plan,
// for every setting of a resource: those in the table must restart nothing.
func TestUndisturbing(t *testing.T) {
	w := newWorld(t)
	base := typical()
	base.AzureAuth = AzureAuth{
		Method: api.ManagedIdentity, ManagedIdentity: &ManagedIdentityAuth{ClientID: clientB},
	}
	configOf := func(d Desired) object {
		w.put(d)
		return w.whole(w.last(), Grants{ClientSecret: "s", Token: anyToken})
	}
	from := configOf(base)
	disturbing := 0
	for name, edit := range map[string]func(*Desired){
		"labels":        func(d *Desired) { d.NodeConfig.Labels = map[string]string{"site": "north"} },
		"taints":        func(d *Desired) { d.NodeConfig.Taints = []string{"a=b:NoSchedule"} },
		"drift policy":  func(d *Desired) { d.DriftPolicy = "off" },
		"drain":         func(d *Desired) { d.UpgradePolicy.Drain = "always" },
		"ready timeout": func(d *Desired) { d.UpgradePolicy.ReadyTimeout = "PT7M" },
		"interval":      func(d *Desired) { d.Monitoring.Interval = "PT77S" },
		"metadata":      func(d *Desired) { d.Network.Metadata = "allow" },
		"max pods":      func(d *Desired) { d.NodeConfig.MaxPods = 77 },
		"eviction": func(d *Desired) {
			d.NodeConfig.Kubelet.EvictionHard = map[string]string{"memory.available": "321Mi"}
		},
		"registries": func(d *Desired) { d.AzureAuth.Registries = []string{"a.azurecr.io"} },
		"verbosity":  func(d *Desired) { d.NodeConfig.Kubelet.Verbosity = new(5) },
		"containerd": func(d *Desired) { d.Versions.Containerd = "2.1.9" },
		"kubernetes": func(d *Desired) { d.Versions.Kubernetes = "1.34.9" },
	} {
		d := base
		edit(&d)
		to := configOf(d)
		change, units := ChangeOf(from, to), restarts(from, to)
		if change.ID == "" && len(units) > 0 {
			t.Errorf("%s: restarts %s, and the table says that it disturbs nothing", name,
				strings.Join(units, " "))
		}
		if len(units) > 0 {
			disturbing++
		}
	}
	if disturbing < 3 { // the programs' versions restart by their digests, which are not rendered
		t.Errorf("only %d changes restart something: the test sees nothing", disturbing)
	}
}
