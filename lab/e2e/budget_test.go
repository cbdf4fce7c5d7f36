package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// budget is a PodDisruptionBudget, guarded its manifest and that of a Deployment with two pods, one
// per node.
const (
	budget  = "web-needs-two"
	guarded = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: ` + budget + `}
spec:
  minAvailable: 2
  selector: {matchLabels: {app: guarded}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded}
spec:
  replicas: 2
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      nodeSelector: {line: guarded}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: kubernetes.io/hostname
            labelSelector: {matchLabels: {app: guarded}}
      terminationGracePeriodSeconds: 1
      containers: [{name: hello, image: "` + images.Hello + `"}]
`
)

// A budget that allows no disruption keeps two nodes from a new minor version of Kubernetes: they
// work as before, are not cordoned repeatedly, and az names the budget. Once the budget is deleted,
// both are changed.
func oneBudget(t *testing.T) {
	t.Parallel()
	watched := 2 * time.Minute
	if long() {
		watched = 10 * time.Minute
	}
	operator := azOf{bareMachine(t, "budget-1", "azure-cli")}
	operates(t, operator.m)
	extend(t, operator.m)
	nodes := []*followed{
		guardedNode(t, operator.m, 91), guardedNode(t, bareMachine(t, "budget-2"), 92),
	}
	guardedPods(t)
	was := podsOfBudget(t)

	times := make([]func() int, len(nodes))
	for i, f := range nodes {
		times[i] = cordons(t, f.name)
	}
	began := time.Now()
	for _, f := range nodes {
		f.want["versions"] = lab.Former.Desired()
		f.put(t)
	}
	for _, f := range nodes {
		f.finds(t, "NoChangeWaiting", true)
		shown := operator.az(t, "show $G -n "+f.name)
		if !strings.Contains(shown, budget) {
			t.Errorf("az does not name the budget: %s", shown)
		}
		t.Logf("after %.0f s: %s", time.Since(began).Seconds(), operator.az(t, "show $G -n "+f.name+
			" --query \"properties.status.conditions[?type=='UpToDate'].message\" -o tsv"))
	}
	time.Sleep(time.Until(began.Add(watched)))
	for i, f := range nodes {
		n := times[i]()
		t.Logf("%s was cordoned %d times in %s", f.name, n, watched)
		if n < 1 || n > 3 {
			t.Errorf("%s was cordoned %d times in %s, want 1 to 3", f.name, n, watched)
		}
		if shown := operator.az(t, "show $G -n "+f.name); !strings.Contains(shown, budget) {
			t.Errorf("after %s az does not name the budget: %s", watched, shown)
		}
	}
	if now := podsOfBudget(t); now != was {
		t.Errorf("the pods were\n%s\nand are\n%s", was, now)
	}

	if _, err := bench.Kubectl(t.Context(), "", "delete", "pdb", budget); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	within(t, 3*time.Minute, "both nodes to be upgraded", func() bool {
		return !slices.ContainsFunc(nodes, func(f *followed) bool { return !upgraded(t, f.name) })
	})
	t.Logf("both nodes were upgraded %.1f s after the budget was deleted",
		time.Since(began).Seconds())
	for _, f := range nodes {
		f.applied(t)
		f.finds(t, "NoChangeWaiting", false)
	}
	eventually(t, "the pods to run again", func() bool { return len(runningPods(t)) == 2 })
}

// guardedNode joins a machine that follows its resource. Its drain timeout is a minute, so that the
// short form covers what follows it.
func guardedNode(t *testing.T, m lab.Machine, n int) *followed {
	t.Helper()
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	f := &followed{name: m.Name, want: desired{
		"continuousMonitoring": true,
		"monitoring":           desired{"endpoint": lab.ProviderURL, "interval": "PT10S"},
		"versions":             lab.Oldest.Desired(),
		"upgradePolicy":        desired{"deadline": "PT1M"},
		"nodeConfig":           desired{"labels": desired{"line": "guarded"}},
	}}
	for section, is := range principalWay(t, m.Name, n, desired{}).auth {
		f.want[section] = is
	}
	t.Cleanup(func() {
		_, _, _ = bench.ARM(context.Background(), http.MethodDelete, lab.AzureURL, rpNode(m.Name),
			lab.ProviderAPI, nil)
	})
	f.joins(t, m)
	f.applied(t)
	return f
}

// guardedPods creates the Deployment and the budget, and waits until the budget counts both pods.
func guardedPods(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		_, _ = bench.Kubectl(context.Background(), guarded, "delete", "--ignore-not-found", "-f", "-")
	})
	if _, err := bench.Kubectl(t.Context(), guarded, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget to know of two pods", func() bool {
		is := object[policyv1.PodDisruptionBudget](t,
			"/apis/policy/v1/namespaces/default/poddisruptionbudgets/"+budget).Status
		return is.CurrentHealthy == 2 && is.DisruptionsAllowed == 0
	})
}

// runningPods returns the pods of the Deployment that are Ready and not being deleted, each with
// uid, node and restart count.
func runningPods(t *testing.T) []string {
	t.Helper()
	out, err := bench.Kubectl(t.Context(), "", "get", "pods", "-l", "app=guarded", "-o",
		`jsonpath={range .items[*]}{.metadata.uid} {.spec.nodeName} `+
			`{.status.containerStatuses[0].restartCount} `+
			`{.status.containerStatuses[0].ready}{.metadata.deletionTimestamp}{"\n"}{end}`)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return !strings.HasSuffix(line, " true")
	})
}

// podsOfBudget returns the two pods, sorted.
func podsOfBudget(t *testing.T) string {
	t.Helper()
	pods := runningPods(t)
	if len(pods) != 2 {
		t.Fatalf("the budget keeps %q, want two pods", pods)
	}
	slices.Sort(pods)
	return strings.Join(pods, "\n")
}

// upgraded reports whether a Node has the newer kubelet and is Ready and schedulable.
func upgraded(t *testing.T, name string) bool {
	t.Helper()
	n := nodeOf(t, name)
	return n.Status.NodeInfo.KubeletVersion == "v"+lab.Former.Kubernetes && !n.Spec.Unschedulable &&
		condition(n, corev1.NodeReady) == corev1.ConditionTrue
}

// cordons watches a Node until the end of the test. times returns the number of cordons so far.
func cordons(t *testing.T, name string) (times func() int) {
	t.Helper()
	client, err := bench.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf(
		"%s/api/v1/nodes?watch=true&timeoutSeconds=3600&fieldSelector=metadata.name%%3D%s",
		lab.APIServer, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the watch of Node %s: %s", name, response.Status)
	}
	var (
		mutex sync.Mutex
		count int
		ended error
	)
	go func() {
		defer response.Body.Close()
		events, was := json.NewDecoder(response.Body), false
		for {
			var event struct{ Object lab.Node }
			err := events.Decode(&event)
			mutex.Lock()
			if now := event.Object.Spec.Unschedulable; err == nil && now != was {
				was = now
				if now {
					count++
				}
			}
			ended = err
			mutex.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return func() int {
		t.Helper()
		mutex.Lock()
		defer mutex.Unlock()
		if ended != nil {
			t.Fatalf("the watch of Node %s has ended: %v", name, ended)
		}
		return count
	}
}
