package stories

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// The plan of a join shows the rules by which pods leave the cluster's network, although the node's
// own pod subnet is not known yet. Without listed networks it has the family of Services.
func TestPlanOfMasquerading(t *testing.T) {
	for _, tt := range []struct {
		dns, pods, unit string
		direct          []string
	}{
		{"10.0.0.10", "10.244.7.0/24", "aks-flex-node-masquerade.service", []string{}},
		{"10.0.0.10", "10.244.7.0/24", "aks-flex-node-masquerade.service", []string{"10.244.0.0/16"}},
		{"fd00:10::a", "fd00:7::/64", "aks-flex-node-masquerade6.service", []string{}},
	} {
		w := newWorld(t)
		w.cluster.podCIDRs = []string{tt.pods}
		w.config = w.configuration(func(c map[string]any) {
			c["cni"] = map[string]any{"nonMasqueradeCIDRs": tt.direct}
		})
		w.config.Node.Kubelet.DNSServiceIP = tt.dns
		plan, err := change.Plan(t.Context(), w.agent(), change.Input{Config: w.config})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(plan.Changes, func(e state.Line) bool {
			return e.Key == state.UnitKey(tt.unit)
		}) {
			t.Errorf("planned %+v", plan.Changes)
		}
		result, err := w.bootstrap()
		if err != nil || result.Changes != len(plan.Changes) {
			t.Errorf("%v, planned %d changes and made %d", err, len(plan.Changes), result.Changes)
		}
	}
}

// A machine that asks Azure for its cluster learns the network of its pods, which they reach with
// their own addresses. The network stays as at the join, and a node that joined without it does not
// learn it; the configuration takes precedence.
func TestPodNetworkOfAzure(t *testing.T) {
	t.Parallel()
	direct := regexp.MustCompile(`-A AKS-FLEX-NODE -d (\S+) -j RETURN`)
	network := []string{"10.244.0.0/16"}
	for name, tt := range map[string]struct {
		atJoin []string
		given  any
		want   []string
	}{
		"learned":    {network, nil, network},
		"unknown":    {nil, nil, nil},
		"given":      {network, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		"not wanted": {network, []string{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, sim := azureWorld(t)
			tell := func(networks []string) {
				sim.AddCluster(azuresim.Cluster{ID: clusterID, Server: w.cluster.URL,
					CA: string(w.cluster.caPEM), Entra: true, AzureRBAC: true, PodCIDRs: networks})
			}
			document := func(maxPods int) (c map[string]any) {
				text := w.document(w.azure(nil), func(c map[string]any) {
					if tt.given != nil {
						c["cni"] = map[string]any{"nonMasqueradeCIDRs": tt.given}
					}
					c["node"].(map[string]any)["maxPods"] = maxPods
				})
				if err := json.Unmarshal(text, &c); err != nil {
					t.Fatal(err)
				}
				return c
			}
			tell(tt.atJoin)
			for _, maxPods := range []int{30, 31} {
				if _, err := w.reads(document(maxPods), nil); err != nil {
					t.Fatal(err)
				}
				var got []string // the last one is of multicast
				rules := w.read("/opt/aks-flex-node/masquerade.rules")
				for _, rule := range direct.FindAllStringSubmatch(rules, -1) {
					got = append(got, rule[1])
				}
				if len(got) != len(tt.want)+1 || !slices.Equal(got[:len(tt.want)], tt.want) {
					t.Errorf("maxPods %d: the rules are\n%s", maxPods, rules)
				}
				tell([]string{"10.99.0.0/16"})
			}
		})
	}
}
