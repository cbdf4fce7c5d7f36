package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

// A machine that joined by one command follows its flexNodeConfig: a label arrives within seconds,
// another setting of kubelet leaves the pods running, and after the deletion of the resource the
// machine is as it was, with its service waiting for another configuration.
func follows(t *testing.T) {
	const name = "follow-1"
	m := bareMachine(t, name)
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	before := snapshot(t.Context(), t, m)
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	node := func(label string, pods int) desired {
		return desired{"properties": desired{
			"continuousMonitoring": true, "monitoring": desired{"endpoint": lab.ProviderURL},
			"versions": lab.Newest.Desired(),
			"azureAuth": desired{"method": "servicePrincipal", "servicePrincipal": desired{
				"clientId": who.Node.ClientID, "clientSecret": who.Node.Secret,
				"clientTenant": lab.Tenant}},
			"nodeConfig": desired{"labels": desired{"line": label}, "maxPods": pods},
		}}
	}
	answer := rp(t, 201, http.MethodPut, rpNode(name)+"?configUrl=true", node("1", 50))
	url, _ := properties(answer)["configUrl"].(string)
	out := output(t, m, "sh", "-c", "echo '"+url+"' | aks-flex-node agent --config-url -")
	if !strings.Contains(out, "is Ready") {
		t.Fatalf("the command says\n%s", out)
	}
	if _, err := bench.CheckPod(t.Context(), "pod-follow", name); err != nil {
		t.Fatal(err)
	}
	pod := func() string {
		out, err := bench.Kubectl(t.Context(), "", "get", "pod", "pod-follow", "-o",
			"jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}")
		if err != nil {
			t.Error(err)
		}
		return out
	}
	first := pod()

	// A service that has just started polls after up to 40 s; what is measured is the long poll.
	started := time.Now()
	eventually(t, 2*time.Minute, "the node's long poll", func() bool {
		waiting, err := bench.WaitingPolls(t.Context())
		return err == nil && waiting > 0
	})
	t.Logf("the provider held a poll after another %.1f s", time.Since(started).Seconds())
	rp(t, 200, http.MethodPut, rpNode(name), node("2", 50))
	began := time.Now()
	eventually(t, time.Minute, "the label in Kubernetes", func() bool {
		out, err := bench.Kubectl(t.Context(), "", "get", "node", name, "-o",
			"jsonpath={.metadata.labels.line}")
		return err == nil && out == "2"
	})
	t.Logf("the label was in Kubernetes after %.1f s", time.Since(began).Seconds())

	rp(t, 200, http.MethodPut, rpNode(name), node("2", 60))
	eventually(t, time.Minute, "the pods that the Node may have", func() bool {
		out, err := bench.Kubectl(t.Context(), "", "get", "node", name, "-o",
			"jsonpath={.status.capacity.pods}")
		return err == nil && out == "60"
	})
	if now := pod(); now != first {
		t.Errorf("the pod was %s and is %s", first, now)
	}
	eventually(t, 90*time.Second, "the version to be reported", func() bool {
		shown := properties(rp(t, 200, http.MethodGet, rpNode(name), nil))
		status, _ := shown["status"].(map[string]any)
		runs, _ := status["components"].(map[string]any)
		return status["appliedConfigVersion"] == shown["configVersion"] &&
			runs["kubelet"] == lab.Newest.Kubernetes
	})

	if _, err := bench.Kubectl(t.Context(), "", "delete", "pod", "pod-follow", "--now"); err != nil {
		t.Error(err)
	}
	rp(t, 200, http.MethodDelete, rpNode(name), nil)
	eventually(t, 3*time.Minute, "the machine to wait for another configuration", func() bool {
		out := output(t, m, "systemctl", "show", "-p", "StatusText", service)
		return strings.Contains(out, "waiting for a configuration")
	})
	if out, err := bench.Kubectl(t.Context(), "", "get", "node", name); err == nil {
		t.Errorf("the Node is left: %s", out)
	}
	if got := output(t, m, "systemctl", "is-enabled", service); got != "enabled\n" {
		t.Errorf("the service is %s", got)
	}
	output(t, m, "systemctl", "disable", "--now", service)
	same(t, before, snapshot(t.Context(), t, m))
}
