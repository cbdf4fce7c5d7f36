package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// Every way of document 004 in which a node authenticates, to Azure and to the cluster, supports
// the same life: joined by one command, followed, changed while its pods keep running, given
// another credential, and removed by the deletion of its resource.
func follows(t *testing.T) {
	t.Parallel()
	list := ways(t) // creates identities in Azure first; the nodes then run in parallel
	assigned := rolesOf(t, list)
	t.Run("ways", func(t *testing.T) {
		for _, w := range list {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				followsAs(t, w)
			})
		}
		t.Run("tutorial", func(t *testing.T) {
			t.Parallel()
			tutorial(t, bareMachine(t, "edge-1", "azure-cli"))
		})
	})
	arcRemains(t, list, assigned)
}

// followsAs goes through the life of a node.
func followsAs(t *testing.T, w way) {
	name, m := w.node, w.m
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	before := snapshot(t.Context(), t, m)
	f := &followed{name: name, want: desired{
		"continuousMonitoring": true,
		"monitoring":           desired{"endpoint": w.endpoint, "interval": "PT10S"},
		"versions":             lab.Former.Desired(),
		"nodeConfig":           desired{"labels": desired{"line": "1"}, "maxPods": 50},
	}}
	for section, is := range w.auth {
		f.want[section] = is
	}
	f.joins(t, m)
	if _, err := bench.CheckPod(t.Context(), "pod-"+name, name); err != nil {
		t.Fatal(err)
	}
	was := pod(t, "pod-"+name)

	f.polls(t)
	if !w.brief {
		f.changes(t, m, was)
	}

	w.grant(t)
	for section, is := range w.next {
		f.want[section] = is
	}
	f.put(t)
	f.applied(t)
	w.revoke(t)
	f.labels(t, "3")
	if out, code := inside(t, m, "sh", "-c", "rm -f /run/aks-flex-node/token*.json; "+
		"exec kubectl --cache-dir=/tmp/kubectl --kubeconfig=/var/lib/kubelet/kubeconfig get node "+
		name); code != 0 {
		t.Errorf("kubelet's credential after the change: %s", out)
	}
	alive(t, "pod-"+name, was)

	if _, err := bench.Kubectl(t.Context(), "", "delete", "pod", "pod-"+name, "--now"); err != nil {
		t.Error(err)
	}
	rp(t, 200, http.MethodDelete, rpNode(name), nil)
	waitsAgain(t, m)
	if out, err := bench.Kubectl(t.Context(), "", "get", "node", name); err == nil {
		t.Errorf("the Node is left: %s", out)
	}
	same(t, before, snapshot(t.Context(), t, m))
}

// changes lets a node report a finding, and changes it while its pod keeps running.
func (f *followed) changes(t *testing.T, m lab.Machine, was string) {
	t.Helper()
	name := f.name
	output(t, m, "touch", "/run/reboot-required")
	f.finds(t, "RebootNotPending", true)
	output(t, m, "rm", "/run/reboot-required")
	began := f.labels(t, "2")
	t.Logf("the label was in Kubernetes after %.1f s", time.Since(began).Seconds())

	f.want["versions"] = lab.Newest.Desired()
	f.want["nodeConfig"].(desired)["maxPods"] = 60
	f.put(t)
	f.applied(t)
	f.finds(t, "RebootNotPending", false)
	eventually(t, "the pods that the Node may have", func() bool {
		n := nodeOf(t, name)
		return n.Status.Capacity.Pods().Value() == 60 &&
			n.Status.NodeInfo.KubeletVersion == "v"+lab.Newest.Kubernetes
	})
	if now := pod(t, "pod-"+name); now != was {
		t.Errorf("the pod was %s and is %s", was, now)
	}
}

// waitsAgain waits until the service of a machine whose resource was deleted waits for another
// configuration, and stops it.
func waitsAgain(t *testing.T, m lab.Machine) {
	t.Helper()
	eventually(t, "the machine to wait for another configuration", func() bool {
		out := output(t, m, "systemctl", "show", "-p", "StatusText", service)
		return strings.Contains(out, "waiting for a configuration")
	})
	if got := output(t, m, "systemctl", "is-enabled", service); got != "enabled\n" {
		t.Errorf("the service is %s", got)
	}
	output(t, m, "systemctl", "disable", "--now", service)
}

// followed is a node that follows its flexNodeConfig.
type followed struct {
	name string
	want desired
}

// joins creates the resource and runs the agent where no one can log in.
func (f *followed) joins(t *testing.T, m lab.Machine) {
	t.Helper()
	url := created(t, f.name, f.want)
	auth, _ := f.want["azureAuth"].(desired)
	status, bundle := get(t, url)
	if status != 200 || auth["method"] != "servicePrincipal" &&
		strings.Contains(bundle, "servicePrincipal") {
		t.Fatalf("the configuration URL: %d %s", status, bundle)
	}
	out := output(t, m, "sh", "-c", "echo '"+url+"' | aks-flex-node agent --config-url-file -")
	if !strings.Contains(out, "is Ready") {
		t.Fatalf("the command says\n%s", out)
	}
}

// put writes the node's properties to the provider.
func (f *followed) put(t *testing.T) {
	t.Helper()
	rp(t, 200, http.MethodPut, rpNode(f.name), desired{"properties": f.want})
}

// status returns the node's status in the resource, and the offered version.
func (f *followed) status(t *testing.T) (status map[string]any, version any) {
	t.Helper()
	shown := properties(rp(t, 200, http.MethodGet, rpNode(f.name), nil))
	status, _ = shown["status"].(map[string]any)
	return status, shown["configVersion"]
}

// polls waits until the agent has reported and polls. A service that has just started does so only
// after a while; measurements then include only the long poll.
func (f *followed) polls(t *testing.T) {
	t.Helper()
	began := time.Now()
	f.applied(t)
	eventually(t, "the node's long poll", func() bool {
		status, _ := f.status(t)
		waiting, err := bench.WaitingPolls(t.Context())
		return err == nil && waiting > 0 && status["lastSeen"] != nil
	})
	t.Logf("the node has polled %.1f s after its first pod ran", time.Since(began).Seconds())
}

// finds waits until the resource shows that a condition is False, or no longer.
func (f *followed) finds(t *testing.T, name string, found bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to be found (%v)", name, found), func() bool {
		status, _ := f.status(t)
		list, _ := status["conditions"].([]any)
		return found == slices.ContainsFunc(list, func(c any) bool {
			condition, _ := c.(map[string]any)
			return condition["type"] == name && condition["status"] == "False"
		})
	})
}

// labels changes a label, waits until the Node has it, and returns the time of the provider's
// response.
func (f *followed) labels(t *testing.T, value string) time.Time {
	t.Helper()
	f.want["nodeConfig"].(desired)["labels"] = desired{"line": value}
	f.put(t)
	began := time.Now()
	eventually(t, "the label in Kubernetes", func() bool {
		return nodeOf(t, f.name).Labels["line"] == value
	})
	return began
}

// applied waits until the agent has reported the offered version as applied.
func (f *followed) applied(t *testing.T) {
	t.Helper()
	eventually(t, "the version to be reported", func() bool {
		status, version := f.status(t)
		if config, _ := status["config"].(map[string]any); config["failed"] != nil {
			failed, _ := json.Marshal(config["failed"])
			t.Fatalf("a version has failed: %s", failed)
		}
		runs, _ := status["components"].(map[string]any)
		versions, _ := f.want["versions"].(map[string]any)
		return status["appliedConfigVersion"] == version && status["lastConfigApplied"] != nil &&
			runs["kubelet"] == versions["kubernetes"]
	})
}
