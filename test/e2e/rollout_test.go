package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/lab"
	"github.com/Azure/AKSFlexNode/internal/lab/images"
)

// movable is a Deployment on the nodes of the rollout that may lose one pod at a time, each of which
// ends after the proxies have had time to leave it out.
const movable = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: steady}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: steady}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: steady}
spec:
  replicas: 6
  selector: {matchLabels: {app: steady}}
  template:
    metadata: {labels: {app: steady}}
    spec:
      nodeSelector: {line: guarded}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: steady}}
      containers:
      - name: hello
        image: "` + images.Hello + `"
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
`

// useSteadily runs the Deployment and has a pod on another node send requests to its Service. lost
// returns the number of requests, and of those that failed.
func useSteadily(t *testing.T) (lost func() (requests, failures int64)) {
	t.Helper()
	ctx := t.Context()
	t.Cleanup(func() {
		_, _ = bench.Kubectl(context.Background(), movable, "delete", "--ignore-not-found", "-f", "-")
		_, _ = bench.Kubectl(context.Background(), "", "delete", "--ignore-not-found",
			"service/steady", "pod/steady-load")
	})
	if _, err := bench.Kubectl(ctx, movable, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Kubectl(ctx, "", "rollout", "status", "deployment/steady",
		"--timeout=3m"); err != nil {
		t.Fatal(err)
	}
	service, err := bench.Expose(ctx, "steady")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + net.JoinHostPort(service.IPs[0], "8080")
	other := peer(t).Name
	if _, err := bench.Fetch(ctx, other, url); err != nil { // its proxy knows the Service
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(loads, "steady-load", other, images.Hello, url, false)
	if _, err := bench.StartPod(ctx, "steady-load", manifest); err != nil {
		t.Fatal(err)
	}
	return func() (requests, failures int64) {
		t.Helper()
		out, err := bench.Kubectl(t.Context(), "", "logs", "steady-load")
		found := loadCounts.FindStringSubmatch(out)
		if err != nil || found == nil {
			t.Fatalf("%q, %v", out, err)
		}
		requests, _ = strconv.ParseInt(found[3], 10, 64) // they are numbers
		failures, _ = strconv.ParseInt(found[4], 10, 64)
		if failures > 0 {
			t.Log(out)
		}
		return requests, failures
	}
}

// TestRollout has a minor version of Kubernetes wanted for six nodes at once, with a canary that
// soaks for half a minute: never more than one node is cordoned or not Ready, and a Deployment on
// them loses no request. It has the cluster to
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
	lost := useSteadily(t)
	before, _ := lost()
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
	requests, failures := lost()
	t.Logf("%d of %d requests failed", failures, requests-before)
	if failures > 0 || requests <= before {
		t.Errorf("%d of %d requests failed", failures, requests-before)
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
