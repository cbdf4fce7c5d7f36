package flexnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
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
	g := generator(t)
	for range 300 {
		w := newWorld(t)
		configs := map[int64]string{}
		for range 2 + g.IntN(8) {
			w.now = w.now.Add(time.Duration(g.IntN(100)) * time.Second)
			if d, problems := w.decide(randomDesired(g)); len(problems) == 0 {
				w.keep(d.Node, d.Revision)
				configs[w.node.Revision] = w.config(w.last())
			}
		}
		if w.node == nil {
			continue
		}
		all := must(w.history.All())
		to := pick(g, all...)
		before := *w.node
		d, err := w.rollBack(to.Version)
		if e, refused := errors.AsType[*arm.Error](err); refused {
			if to.SecretVersion == 0 || to.SecretVersion == w.version {
				t.Fatalf("%v, although its secret is kept", e)
			}
			continue
		}
		must(0, err)
		if diff := cmp.Diff(configs[to.Version], w.config(w.last())); diff != "" {
			t.Fatalf("another configuration: %s", diff)
		}
		if d.Revision != nil && d.Revision.Version <= before.Revision {
			t.Fatalf("version %d after %d", d.Revision.Version, before.Revision)
		}
		shown := Shown(*w.node, nil, nil, nil).Properties.Desired
		put, problems := w.decide(desiredOf(shown))
		if len(problems) > 0 || put.Changed || put.Revision != nil || put.Write {
			t.Fatalf("a PUT of what is shown: %v, %+v", problems, put)
		}
		if again, err := w.rollBack(to.Version); err != nil || again.Write {
			t.Fatalf("again: %v, %+v", err, again)
		}
	}
}

// A rollback gives the node the present facts of its cluster, and keeps its defaults.
func TestRollBackKeepsFacts(t *testing.T) {
	w := newWorld(t)
	w.defaults(object{"proxy": object{"https": "http://one.example:3128"}})
	w.put(Desired{})
	first := w.node.Revision
	w.defaults(nil)
	f := someFacts()
	f.ServerURL = "https://moved.example:6443"
	w.reach(f, "1.35.4")
	w.put(Desired{NodeConfig: NodeConfig{MaxPods: 50}})
	must(w.rollBack(first))
	var got struct {
		Proxy struct{ HTTPS string }
		Node  struct {
			MaxPods int
			Kubelet struct{ ServerURL string }
		}
	}
	must(0, json.Unmarshal([]byte(w.config(w.last())), &got))
	if got.Node.Kubelet.ServerURL != f.ServerURL || got.Node.MaxPods == 50 ||
		got.Proxy.HTTPS == "" {
		t.Errorf("%+v", got)
	}
}

func TestRollBackIsRefused(t *testing.T) {
	secret := func(s string) Desired {
		d := typical()
		d.AzureAuth.ServicePrincipal.ClientSecret = s
		return d
	}
	tests := map[string]struct {
		first, second Desired
		spoil         func(*world)
		want          string
	}{
		"another secret":     {secret("a"), secret("b"), nil, "SecretNotKept"},
		"no secret any more": {secret("a"), Desired{}, nil, "SecretNotKept"},
		"a cluster that has moved on": {
			Desired{Versions: Versions{Kubernetes: "1.34.4"}},
			Desired{Versions: Versions{Kubernetes: "1.35.4"}},
			func(w *world) { w.reach(someFacts(), "1.39.0") }, "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put(test.first)
			first := w.node.Revision
			w.put(test.second)
			if test.spoil != nil {
				test.spoil(w)
			}
			_, err := w.rollBack(first)
			if e, _ := errors.AsType[*arm.Error](err); e != nil && e.Code == test.want {
				return
			}
			problems, _ := errors.AsType[Problems](err)
			if test.want != "" || len(problems) == 0 {
				t.Errorf("got %v", err)
			}
		})
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
	if got := Diff(to, to); len(got.Changes) != 0 || got.Disruption != "none" {
		t.Errorf("a configuration differs from itself: %v", got)
	}
	minor := func(v string) object { return object{"kubernetes": object{"version": v}} }
	expect(t, "another minor version", Diff(minor("1.34.4"), minor("1.35.0")).Disruption, "drain")
	subnet := object{"cni": object{"podCIDR": "10.244.3.0/24"}}
	expect(t, "a pod subnet", Diff(minor("1.34.4"), subnet).Disruption, "drain")
}

func TestChangeOf(t *testing.T) {
	from := map[string]any{"node": map[string]any{"maxPods": 110, "labels": map[string]any{"a": "b"}}}
	to := map[string]any{"node": map[string]any{"maxPods": 60}, "agent": map[string]any{"x": 1}}
	c := ChangeOf(from, to)
	if len(c.Settings) != 1 || c.Settings[0] != "node.maxPods=60" || len(c.ID) != 12 {
		t.Errorf("%+v", c)
	}
	other := ChangeOf(nil, map[string]any{"node": map[string]any{"maxPods": 60}})
	expect(t, "the same change from elsewhere", other.ID, c.ID)
	expect(t, "the change of labels",
		ChangeOf(from, map[string]any{"node": map[string]any{"maxPods": 110}}).ID, "")
}

// restarts returns what a joined agent restarts units for, to get to another configuration. The
// unit that loads packet rules disturbs no pod.
func restarts(t *testing.T, from, to object) []string {
	desired := func(whole object) state.Desired {
		loaded, err := config.Parse(must(json.Marshal(whole)), anyHost())
		c := loaded.Config
		must(0, err)
		return node.Bind(node.Render(c, node.Facts{}), node.Bindings{
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
		defaults, facts := w.layers[w.last().Defaults], w.layers[w.last().Facts]
		return must(Config(*w.last(), defaults, facts, Grants{ClientSecret: "s", Token: anyToken}))
	}
	from := configOf(base)
	disturbing := 0
	for name, edit := range map[string]func(*Desired){
		"labels": func(d *Desired) {
			d.NodeConfig.Labels = map[string]string{"site": "north"}
		},
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
		d.NodeConfig.Labels = maps.Clone(base.NodeConfig.Labels)
		edit(&d)
		to := configOf(d)
		change, units := ChangeOf(from, to), restarts(t, from, to)
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
