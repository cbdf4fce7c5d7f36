package flexnode

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

func TestCheckCluster(t *testing.T) {
	pool := func(network string, mask int) api.ClusterProperties {
		return api.ClusterProperties{PodCIDR: network, NodeCIDRMask: mask}
	}
	old := &Cluster{Properties: pool("10.200.0.0/22", 24)}
	tests := []struct {
		location   string
		properties api.ClusterProperties
		old        *Cluster
		want       string
	}{
		{"westeurope", api.ClusterProperties{}, nil, ""},
		{"West Europe", api.ClusterProperties{
			Kubeconfig: "factory", ServerURL: "https://[::1]:6443/", DNSServiceIP: "10.0.0.10",
		}, nil, ""},
		{"", api.ClusterProperties{}, nil, "location"},
		{"x", api.ClusterProperties{Kubeconfig: "../x"}, nil, "properties.kubeconfig"},
		{"x", api.ClusterProperties{ServerURL: "http://x"}, nil, "properties.serverUrl"},
		{"x", api.ClusterProperties{DNSServiceIP: "x"}, nil, "properties.dnsServiceIP"},
		{"x", pool("10.200.0.0/16", 24), nil, ""},
		{"x", pool("fd00:1::/48", 64), nil, ""},
		{"x", pool("10.200.0.1/16", 24), nil, "properties.podCidr"},
		{"x", pool("", 24), nil, "properties.podCidr"},
		{"x", pool("10.200.0.0/16", 15), nil, "properties.nodeCidrMask"},
		{"x", pool("10.200.0.0/16", 31), nil, "properties.nodeCidrMask"},
		{"x", pool("fd00::/8", 64), nil, "properties.nodeCidrMask"},
		{"x", pool("10.200.0.0/22", 24), old, ""},
		{"x", pool("10.201.0.0/22", 24), old, "properties.podCidr"},
		{"x", pool("", 0), old, "properties.podCidr"},
		{"x", pool("10.201.0.0/22", 24), &Cluster{}, ""},
	}
	for _, tt := range tests {
		c := api.ManagedCluster{Location: tt.location, Properties: tt.properties}
		got := ""
		for _, p := range CheckCluster(c, tt.old) {
			got += p.Target
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", c, got, tt.want)
		}
	}
}

func TestShownCluster(t *testing.T) {
	c := Cluster{ID: cluster, Location: "x", Version: "7"}
	states := []string{ShownCluster(c).Properties.ProvisioningState}
	c.Facts = "f"
	states = append(states, ShownCluster(c).Properties.ProvisioningState)
	c.Deletion = &Deletion{Operation: "o"}
	states = append(states, ShownCluster(c).Properties.ProvisioningState)
	if diff := cmp.Diff([]string{api.Creating, api.Succeeded, api.Deleting}, states); diff != "" {
		t.Error(diff)
	}
	if s := ShownCluster(c); s.Name != "Factory" || s.ETag != `"7"` || s.Type != ClusterType {
		t.Errorf("%+v", s)
	}
}

// Ready is never a stale True (M8).
func TestStatus(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	is := func(status string) *api.Condition {
		return &api.Condition{Type: Ready, Status: status, LastTransitionTime: now, Reason: "Is"}
	}
	const down, gone = "Unknown " + ClusterUnreachable, "Unknown " + NodeNotFound
	agent := api.Report{Conditions: []api.Condition{*is("True")}}
	tests := map[string]struct {
		status    Status
		reachable bool
		want      string
	}{
		"never joined":                 {Status{}, true, ""},
		"never joined, cluster down":   {Status{}, false, ""},
		"ready":                        {Status{Ready: is("True")}, true, "True Is"},
		"not ready":                    {Status{Ready: is("False")}, true, "False Is"},
		"ready, cluster down":          {Status{Ready: is("True")}, false, down},
		"not ready, cluster down":      {Status{Ready: is("False")}, false, down},
		"Node deleted":                 {Status{Ready: NodeMissing(now)}, true, gone},
		"Node deleted, cluster down":   {Status{Ready: NodeMissing(now)}, false, gone},
		"the agent says it is ready":   {Status{Report: agent, Ready: NodeMissing(now)}, true, gone},
		"only the agent says anything": {Status{Report: agent}, true, "True Is"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			e := Evidence{Status: tt.status, Reachable: tt.reachable, Now: now}
			for _, c := range StatusOf(e).Conditions {
				if c.Type == Ready {
					got += c.Status + " " + c.Reason
				}
			}
			if got != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
	ahead := StatusOf(Evidence{Seen: now.Add(time.Minute), Now: now})
	if !ahead.LastSeen.Equal(now) {
		t.Errorf("seen in the future: %+v", ahead)
	}
}

func TestShown(t *testing.T) {
	n := Node{
		ID: nodeID, UID: "u-v", Revision: 9, Assigned: 8, State: api.Updating,
		Desired: withoutSecret(typical()),
	}
	listed := Shown(n, nil, nil, nil)
	if p := listed.Properties; p.ConfigVersion != "9" || p.ResourceUID != "u-v" ||
		p.ProvisioningState != api.Updating || p.Config != nil || p.Status != nil {
		t.Errorf("%+v", p)
	}
	if listed.Name != "Edge-1" || listed.ETag != `"u-8-9"` || listed.Type != api.ResourceType {
		t.Errorf("%+v", listed)
	}
	if got := Shown(n, &Revision{Version: 9}, nil, nil).Properties.ConfigVersion; got != "9" {
		t.Error(got)
	}
	n.Reason = "because"
	given := &api.Status{Conditions: []api.Condition{{Type: "A"}}}
	shown := Shown(n, nil, nil, given)
	if len(shown.Properties.Status.Conditions) != 2 || len(given.Conditions) != 1 {
		t.Errorf("%+v, %+v", shown.Properties.Status, given)
	}
}

// Each place of a pool is tried once, the first one depends on the name, and each subnet leads back
// to its place.
func TestSlots(t *testing.T) {
	for _, pool := range []struct {
		network string
		mask, n int
	}{
		{"10.200.0.0/22", 24, 4}, {"10.200.0.0/24", 24, 1}, {"10.0.0.0/8", 16, 256},
		{"fd00:1::/56", 64, 256}, {"10.200.3.0/25", 29, 16},
	} {
		if got := Slots(pool.network, pool.mask); got != pool.n {
			t.Errorf("%s/%d has %d subnets", pool.network, pool.mask, got)
		}
		keys, subnets := map[string]bool{}, map[string]bool{}
		for i := range pool.n {
			key, subnet, ok := Slot("c", "edge-1", pool.network, pool.mask, i)
			again, _, _ := Slot("c", "edge-1", pool.network, pool.mask, i)
			if !ok || key != again || !strings.HasPrefix(key, "c/") ||
				SlotOf("c", pool.network, subnet) != key {
				t.Fatalf("%s: %s %s", pool.network, key, subnet)
			}
			keys[key], subnets[subnet] = true, true
		}
		if len(keys) != pool.n || len(subnets) != pool.n {
			t.Errorf("%s: %d keys, %d subnets", pool.network, len(keys), len(subnets))
		}
		if _, _, ok := Slot("c", "edge-1", pool.network, pool.mask, pool.n); ok {
			t.Errorf("%s has a place too many", pool.network)
		}
	}
	for _, bad := range [][2]string{
		{"10.200.0.0/22", "10.201.0.0/24"}, {"x", "10.200.0.0/24"}, {"10.200.0.0/22", ""},
		{"10.200.0.0/22", "10.200.0.0/16"},
	} {
		if got := SlotOf("c", bad[0], bad[1]); got != "" {
			t.Errorf("%v is at %s", bad, got)
		}
	}
	if Slots("x", 24) != 0 || Slots("10.0.0.0/24", 16) != 0 || Slots("10.0.0.0/24", 33) != 0 {
		t.Error("no pool has subnets")
	}
	first := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		_, subnet, _ := Slot("c", name, "10.0.0.0/8", 24, 0)
		first[subnet] = true
	}
	if len(first) < 5 {
		t.Errorf("names do not spread: %v", first)
	}
}
