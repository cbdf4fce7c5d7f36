package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

// TestRollout has a minor version of Kubernetes wanted for six nodes at once, with a canary that
// soaks for half a minute: never more than one node is cordoned or not Ready. It has the cluster to
// itself, so it runs only in the long form and by its name.
func TestRollout(t *testing.T) {
	if !long() {
		t.Skip("LONG is not set: it needs the cluster to itself")
	}
	const size = 6
	var nodes []*followed
	for i := range size {
		nodes = append(nodes, guardedNode(t, bareMachine(t, fmt.Sprintf("rollout-%d", i+1)), 81+i))
	}
	policy := func(p any) {
		t.Helper()
		status, text, err := bench.ARM(context.WithoutCancel(t.Context()), http.MethodPut,
			lab.ProviderURL, lab.ClusterID, lab.ProviderAPI, desired{"location": "lab",
				"properties": desired{"kubeconfig": "flexlab", "dnsServiceIP": lab.DNSService,
					"rolloutPolicy": p}})
		if err != nil || status != http.StatusOK {
			t.Fatalf("the policy: %d %s %v", status, text, err)
		}
	}
	policy(desired{"canaries": 1, "soak": "PT30S"})
	t.Cleanup(func() { policy(lab.AllAtOnce()) })
	began := time.Now()
	for _, f := range nodes {
		f.want["versions"] = lab.Former.Desired()
		f.put(t)
	}
	worst, first := 0, map[string]time.Duration{}
	within(t, 20*time.Minute, "all nodes to be upgraded", func() bool {
		away, done := awayNodes(t), 0
		if worst = max(worst, len(away)); len(away) > 1 && !t.Failed() {
			t.Errorf("after %s these are cordoned or not Ready: %v", time.Since(began), away)
		}
		for _, f := range nodes {
			if !upgraded(t, f.name) {
				continue
			}
			if done++; first[f.name] == 0 {
				first[f.name] = time.Since(began)
				t.Logf("%s was upgraded after %.0f s", f.name, first[f.name].Seconds())
			}
		}
		return done == size
	})
	for _, f := range nodes {
		f.applied(t)
	}
	t.Logf("%d nodes, at most %d away at once, in %.0f s", size, worst, time.Since(began).Seconds())
	if worst == 0 {
		t.Error("no node was away at any time: nothing was seen")
	}
}

// awayNodes are the Nodes that are cordoned or not Ready.
func awayNodes(t *testing.T) (away []string) {
	t.Helper()
	out, err := bench.Kubectl(context.WithoutCancel(t.Context()), "", "get", "nodes", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []lab.Node }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if n.Spec.Unschedulable || !n.Ready() {
			away = append(away, n.Metadata.Name)
		}
	}
	return slices.DeleteFunc(away, func(name string) bool {
		return !strings.HasPrefix(name, "rollout-")
	})
}
