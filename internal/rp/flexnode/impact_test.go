package flexnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

func TestChangeOf(t *testing.T) {
	from := map[string]any{"node": map[string]any{"maxPods": 110, "labels": map[string]any{"a": "b"}}}
	to := map[string]any{"node": map[string]any{"maxPods": 60}, "agent": map[string]any{"x": 1}}
	c := ChangeOf(from, to)
	if len(c.Settings) != 1 || c.Settings[0] != "node.maxPods=60" || len(c.ID) != 12 {
		t.Errorf("%+v", c)
	}
	if other := ChangeOf(nil, map[string]any{"node": map[string]any{"maxPods": 60}}); other.ID != c.ID {
		t.Errorf("the same change from elsewhere: %+v, %+v", other, c)
	}
	if c := ChangeOf(from, map[string]any{"node": map[string]any{"maxPods": 110}}); c.ID != "" {
		t.Errorf("labels disturb: %+v", c)
	}
}

// restarts are the units that the agent restarts to get from one configuration to another, once the
// node has joined.
func restarts(t *testing.T, from, to object) []string {
	t.Helper()
	desired := func(whole object) state.Desired {
		c, _, err := config.Parse(must(json.Marshal(whole)), anyHost())
		if err != nil {
			t.Fatal(err)
		}
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
		if c.Restart || len(c.Owes) > 0 {
			all = append(all, fmt.Sprint(c.To.Key()))
		}
	}
	return all
}

// TestUndisturbing holds the table of settings that restart nothing against the agent's own plan, for
// every setting of a resource: those that the table has must restart nothing.
func TestUndisturbing(t *testing.T) {
	w := newWorld(t)
	base := typical()
	configOf := func(d api.Desired) object {
		w.put(d)
		defaults, facts := w.layers[w.last().Defaults], w.layers[w.last().Facts]
		return must(Config(*w.last(), defaults, facts, Grants{ClientSecret: "s", Token: anyToken}))
	}
	from := configOf(base)
	disturbing := 0
	for name, edit := range map[string]func(*api.Desired){
		"labels":        func(d *api.Desired) { d.NodeConfig.Labels = map[string]string{"site": "north"} },
		"taints":        func(d *api.Desired) { d.NodeConfig.Taints = []string{"a=b:NoSchedule"} },
		"drift policy":  func(d *api.Desired) { d.DriftPolicy = "off" },
		"drain":         func(d *api.Desired) { d.UpgradePolicy.Drain = "always" },
		"ready timeout": func(d *api.Desired) { d.UpgradePolicy.ReadyTimeout = "PT7M" },
		"interval":      func(d *api.Desired) { d.Monitoring.Interval = "PT77S" },
		"metadata":      func(d *api.Desired) { d.Network.Metadata = "allow" },
		"max pods":      func(d *api.Desired) { d.NodeConfig.MaxPods = 77 },
		"eviction": func(d *api.Desired) {
			d.NodeConfig.Kubelet.EvictionHard = map[string]string{"memory.available": "321Mi"}
		},
		"verbosity":  func(d *api.Desired) { d.NodeConfig.Kubelet.Verbosity = 5 },
		"containerd": func(d *api.Desired) { d.Versions.Containerd = "2.1.9" },
		"kubernetes": func(d *api.Desired) { d.Versions.Kubernetes = "1.34.9" },
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
