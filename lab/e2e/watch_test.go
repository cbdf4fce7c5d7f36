package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/lab"
)

// report holds the fields of `status --output json` and of the status file that tests use.
type report struct {
	NodeName, Ready, CheckedAt string
	Drift                      []finding
	Conditions                 []struct{ Type, Status, Reason, Message string }
	Rejected                   []map[string]any
}

// condition returns Status/Reason of a condition, or "".
func (r report) condition(kind string) string {
	for _, c := range r.Conditions {
		if c.Type == kind {
			return c.Status + "/" + c.Reason
		}
	}
	return ""
}

// rejection returns the JSON of a rejected configuration that contains a text, or "".
func (r report) rejection(t *testing.T, text string) string {
	t.Helper()
	for _, entry := range r.Rejected {
		shown, err := json.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(shown), text) {
			return string(shown)
		}
	}
	return ""
}

// status returns the output of the command status. Its exit code reports health, so it is ignored.
func status(t *testing.T, m lab.Machine, prefix ...string) (r report) {
	t.Helper()
	argv := append(slices.Clone(prefix), "aks-flex-node", "status", "--output", "json")
	out, _ := bench.Output(t.Context(), m, argv...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("status is not JSON: %v\n%s", err, out)
	}
	return r
}

// statusFile returns the daemon's status file, or the zero report before it is written.
func statusFile(t *testing.T, m lab.Machine) (r report) {
	t.Helper()
	out, code := inside(t, m, "cat", "/run/aks-flex-node/status.json")
	if code != 0 || json.Unmarshal([]byte(out), &r) != nil {
		return report{}
	}
	return r
}

// enable starts the agent as a service. The start never waits for the cluster, or it would exceed
// systemd's time limit while the API server is stopped.
func enable(t *testing.T, m lab.Machine) {
	t.Helper()
	if out, code := inside(t, m, "systemctl", "enable", "--now", "aks-flex-node-agent"); code != 0 {
		t.Fatalf("the service does not start: %s", out)
	}
}

// serve starts the agent as a service and waits until the Node is Ready and the join is committed.
func serve(t *testing.T, m lab.Machine) {
	t.Helper()
	enable(t, m)
	eventually(t, "the Node", func() bool { return ready(t, m) })
	eventually(t, "the end of the join", func() bool {
		_, err := os.Lstat(filepath.Join(m.Root, "var/lib/aks-flex-node/applied"))
		return err == nil
	})
}

// ready reports whether the Node is Ready.
func ready(t *testing.T, m lab.Machine) bool {
	t.Helper()
	return condition(nodeOf(t, m.Name), corev1.NodeReady) == corev1.ConditionTrue
}

// condition returns the status of a Node's condition, or "".
func condition(n corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// nodeOf returns a Node.
func nodeOf(t *testing.T, name string) corev1.Node {
	t.Helper()
	return object[corev1.Node](t, "/api/v1/nodes/"+name)
}

// object returns a Kubernetes object, or an empty one if it is not found. It retries while the API
// server does not respond, as a test may be restarting it. It runs no kubectl: waiting tests read
// every second, and would take CPU time from all others.
func object[T any](t *testing.T, path string) T {
	t.Helper()
	client, err := bench.AdminClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	client.Timeout = 10 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		is, err := lookUp[T](client, path)
		if err == nil {
			return is
		}
		if time.Now().After(deadline) {
			t.Fatalf("cannot read %s: %v", path, err)
		}
	}
}

func lookUp[T any](client *http.Client, path string) (is T, err error) {
	response, err := client.Get(lab.APIServer + path)
	if err != nil {
		return is, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		err = json.NewDecoder(response.Body).Decode(&is)
	case http.StatusNotFound:
	default:
		err = errors.New(response.Status)
	}
	return is, err
}

// edit changes a machine's configuration as an editor does: with a new file in place of the old.
func edit(t *testing.T, m lab.Machine, change func(map[string]any)) {
	t.Helper()
	path := filepath.Join(m.Root, lab.ConfigPath)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	change(config)
	if text, err = json.MarshalIndent(config, "", "  "); err != nil {
		t.Fatal(err)
	}
	if err := bench.Write(m, lab.ConfigPath+".new", 0o600, text); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// section returns an object in a configuration, which it creates if missing.
func section(c map[string]any, names ...string) map[string]any {
	for _, name := range names {
		next, ok := c[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			c[name] = next
		}
		c = next
	}
	return c
}

// applied reports whether the agent's applied configuration contains a text.
func applied(m lab.Machine, text string) bool {
	data, err := os.ReadFile(filepath.Join(m.Root, "var/lib/aks-flex-node/applied-config.json"))
	return err == nil && strings.Contains(string(data), text)
}

// kubelet returns kubelet's process ID and how often its unit has restarted.
func kubelet(t *testing.T, m lab.Machine) string {
	t.Helper()
	out, code := inside(t, m, "systemctl", "show", "kubelet", "-p", "MainPID", "-p", "NRestarts")
	if code != 0 {
		t.Fatalf("kubelet: %s", out)
	}
	return strings.ReplaceAll(strings.TrimSpace(out), "\n", " ")
}

// steady fails the test if kubelet is restarted within a while.
func steady(t *testing.T, m lab.Machine, during time.Duration) {
	t.Helper()
	before := kubelet(t, m)
	time.Sleep(during)
	if now := kubelet(t, m); now != before {
		t.Errorf("kubelet is %s, was %s", now, before)
	}
}

// pod returns the identity of a pod and of its container, with its state.
func pod(t *testing.T, name string) string {
	t.Helper()
	const container = ".status.containerStatuses[0]"
	out, err := bench.Kubectl(t.Context(), "", "get", "pod", name, "-o",
		"jsonpath={.metadata.uid} {"+container+".containerID} {"+container+".restartCount}"+
			" {.status.phase} {.status.reason} {.status.message}")
	if err != nil {
		t.Error(err)
	}
	return out
}

// alive fails the test unless a pod is the same as before and responds.
func alive(t *testing.T, name, was string) {
	t.Helper()
	if now := pod(t, name); now != was {
		t.Errorf("pod %s is %q, was %q", name, now, was)
	}
	eventually(t, "an answer of pod "+name, func() bool {
		out, err := bench.Kubectl(t.Context(), "", "exec", name, "--", "/hello", "hostname")
		return err == nil && strings.TrimSpace(out) == name
	})
}

// stopAPIServer stops the API server for the rest of the test, or until it is started again.
func stopAPIServer(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { startAPIServer(t) })
	if err := bench.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
}

func startAPIServer(t *testing.T) {
	t.Helper()
	if err := bench.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
