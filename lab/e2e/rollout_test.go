package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// movable is a Deployment on the rollout's nodes that may lose one pod at a time. A pod terminates
// after proxies have had time to remove it.
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

// useSteadily runs the Deployment and sends requests to it until the test ends, to the port of each
// node in turn and each over a new connection. used returns the number of requests and the errors
// of failed ones.
func useSteadily(
	t *testing.T, nodes []lab.Machine,
) (used func() (requests int, failures []string)) {
	t.Helper()
	ctx := t.Context()
	t.Cleanup(func() {
		_, _ = bench.Kubectl(context.Background(), movable, "delete", "--ignore-not-found", "-f", "-")
		_, _ = bench.Kubectl(context.Background(), "", "delete", "--ignore-not-found", "service/steady")
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
	for _, m := range nodes { // its proxy has the Service
		if got, err := bench.NodePort(ctx, m, service.Port); err != nil {
			t.Fatalf("the port of %s says %q: %v", m.Name, got, err)
		}
	}
	var (
		mutex    sync.Mutex
		requests int
		failures []string
	)
	client := &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			at := net.JoinHostPort(nodes[i%len(nodes)].IP, service.Port)
			response, err := client.Get("http://" + at)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				err = errors.Join(err, response.Body.Close())
			}
			mutex.Lock()
			requests++
			if err == nil && response.StatusCode != http.StatusOK {
				err = errors.New(response.Status)
			}
			if err != nil && ctx.Err() == nil {
				failures = append(failures, err.Error())
			}
			mutex.Unlock()
		}
	}()
	return func() (int, []string) {
		mutex.Lock()
		defer mutex.Unlock()
		return requests, slices.Clone(failures)
	}
}

// TestRollout sets a minor version of Kubernetes for six nodes at once, with a canary that soaks
// for half a minute: never more than one node is cordoned or not Ready, and a Deployment on them
// loses no request. It needs the cluster to itself, so it runs only in the long form and by name.
func TestRollout(t *testing.T) {
	if !long() {
		t.Skip("LONG is not set: it needs the cluster to itself")
	}
	const size = 6
	var nodes []*followed
	var machines []lab.Machine
	for i := range size {
		m := bareMachine(t, fmt.Sprintf("rollout-%d", i+1))
		nodes, machines = append(nodes, guardedNode(t, m, 81+i)), append(machines, m)
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
	used := useSteadily(t, machines)
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
	requests, failures := used()
	t.Logf("%d of %d requests failed", len(failures), requests)
	if len(failures) > 0 || requests == 0 {
		t.Errorf("requests failed: %q", failures)
	}
	t.Logf("%d nodes, at most %d away at once, in %.0f s", size, worst, time.Since(began).Seconds())
	if worst == 0 {
		t.Error("no node was away at any time: nothing was seen")
	}
}

// awayNodes returns the Nodes that are cordoned or not Ready.
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
