package stories

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/agent/service"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// pki returns the CAs that the cluster trusts now, as Azure and its operator publish them.
func (c *cluster) pki() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.caPEM)
}

// knowing makes the node Ready only while its kubelet was started with the cluster's address and
// CA.
func (w *world) knowing() {
	var knows atomic.Bool
	start, ready := w.systemd.OnStart, w.cluster.ready
	w.systemd.OnStart = func(unit, text string) error {
		if unit != "kubelet.service" {
			return start(unit, text)
		}
		err := start(unit, text)
		kubeconfig, _ := os.ReadFile(filepath.Join(w.root, "/var/lib/kubelet/kubeconfig"))
		_, rest, _ := strings.Cut(string(kubeconfig), "certificate-authority-data: ")
		ca, _ := base64.StdEncoding.DecodeString(strings.Fields(strings.Map(plain, rest) + " x")[0])
		knows.Store(strings.Contains(string(ca), w.cluster.pki()) &&
			strings.Contains(string(kubeconfig), w.cluster.URL))
		return err
	}
	w.cluster.ready = func(name string) bool { return knows.Load() && ready(name) }
}

// plain maps runes that end a word of YAML to spaces.
func plain(r rune) rune {
	if strings.ContainsRune("},\n", r) {
		return ' '
	}
	return r
}

// bindings returns the agent's recorded address and CA of the API server.
func (w *world) bindings() (b struct{ Server, CA, ClusterUID string }) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.root, saved.StateDir, "bindings.json"))
	if err = errors.Join(err, json.Unmarshal(data, &b)); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// daemonReconciles reconciles like the daemon at its start, or after a check.
func (w *world) daemonReconciles() error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		return w.watcher(a).Reconcile(ctx).Err
	})
}

func (w *world) watcher(a *change.Agent) *service.Watcher {
	return &service.Watcher{Agent: a, Live: service.NewLive("story"),
		Load: func() (change.Input, error) {
			return change.Input{Config: w.config, Origin: "file"}, nil
		},
	}
}

// status returns the agent's status of the node.
func (w *world) status() inspect.Status {
	w.t.Helper()
	var status inspect.Status
	err := w.run(func(ctx context.Context, a *change.Agent) (err error) {
		status, err = inspect.ReadStatus(ctx, &a.Env)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return status
}

// condition is one condition of the node's status.
func (w *world) condition(name string) health.Condition {
	w.t.Helper()
	for _, c := range w.status().Conditions {
		if c.Type == name {
			return c
		}
	}
	w.t.Fatalf("there is no condition %s", name)
	return health.Condition{}
}

// publish makes Azure report the present address of the API server.
func (w *world) publish(sim *azuresim.Sim) {
	sim.AddCluster(azuresim.Cluster{
		ID: clusterID, Server: w.cluster.URL, CA: w.cluster.pki(), Entra: true, AzureRBAC: true,
	})
}

// follows fails unless the node follows the present cluster, and accepts the former CA too.
func (w *world) follows(former string) {
	w.t.Helper()
	now := w.cluster.pki()
	b := w.bindings()
	if b.Server != w.cluster.URL || !strings.Contains(b.CA, now) || !strings.Contains(b.CA, former) {
		w.t.Errorf("the bindings are %+v", b)
	}
	ca := w.read("/etc/kubernetes/certs/ca.crt")
	if !strings.Contains(ca, now) || !strings.Contains(ca, former) {
		w.t.Errorf("kubelet's clients are verified with %s", ca)
	}
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		w.t.Errorf("drift: %v %+v", err, report.Changes)
	}
	if c := w.condition(health.NodeReady); c.Status != health.True {
		w.t.Errorf("the Node is not Ready: %s", c.Message)
	}
}

// The API server has another CA or address, which Azure reports. bootstrap and the daemon ask
// again, kubelet is restarted with the new values, and a later rollback uses them.
func TestClusterChanges(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*cluster){
		"CA":      func(c *cluster) { c.newCA("api-1.example") },
		"address": func(c *cluster) { c.move("api-2.example:6443") },
		"both":    func(c *cluster) { c.newCA("api-2.example"); c.move("api-2.example:6443") },
	}
	verbs := map[string]func(*world) error{
		"bootstrap": func(w *world) error { _, err := w.bootstrap(); return err },
		"daemon":    (*world).daemonReconciles,
	}
	for what, change := range changes {
		for verb, run := range verbs {
			for _, credential := range []string{"token", "certificate"} {
				t.Run(what+"/"+verb+"/"+credential, func(t *testing.T) {
					t.Parallel()
					w, sim := azureWorld(t)
					w.cluster.newCA("api-1.example", "api-2.example")
					w.cluster.move("api-1.example:6443")
					w.publish(sim)
					w.config = w.configuration(w.secret(canary, credential))
					w.config.Agent.ReadyTimeout = "20s"
					w.knowing()
					if _, err := w.bootstrap(); err != nil {
						t.Fatal(err)
					}
					former, applied := w.cluster.pki(), w.pointer("applied")
					change(w.cluster)
					w.publish(sim)
					if err := run(w); err != nil {
						t.Fatalf("%v", err)
					}
					w.follows(former)
					if list := w.rejected(); len(list) > 0 {
						t.Errorf("rejected: %+v", list)
					}
					if now := w.pointer("applied"); now != applied {
						t.Errorf("the generation is %.12s, want %.12s: nothing else has changed", now, applied)
					}
					w.goesBackTo(former)
				})
			}
		}
	}
}

// goesBackTo makes a change fail: the node rolls back, and follows the present cluster.
func (w *world) goesBackTo(former string) {
	w.t.Helper()
	w.refuseChangedKubelet()
	healthy := w.config
	w.config.Node.MaxPods = 42
	if _, err := w.bootstrap(); !rolledBack(err) {
		w.t.Errorf("the error is %v; want that the change was rolled back", err)
	}
	w.config = healthy
	if _, err := w.bootstrap(); err != nil {
		w.t.Errorf("the previous configuration: %v", err)
	}
	w.follows(former)
}

// A configuration with the new CA is accepted before the API server has changed to it, and while
// other API servers of the cluster still have the former one.
func TestCAsOverlap(t *testing.T) {
	w := newWorld(t)
	w.knowing()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	former, next := w.cluster.pki(), w.cluster.authority()
	w.config = w.configuration(func(c map[string]any) {
		kubelet := c["node"].(map[string]any)["kubelet"].(map[string]any)
		kubelet["caCertData"] = base64.StdEncoding.EncodeToString(next.trusted)
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatalf("with the new CA, before the API server has it: %v", err)
	}
	w.follows(former)
	w.cluster.adopt(next)
	if result, err := w.bootstrap(); err != nil || result.Changes != 0 {
		t.Errorf("with the API server changed: %d changes, %v", result.Changes, err)
	}
	w.follows(former)
}

// The CA before the former one is not trusted any more, so that CAs do not accumulate.
func TestCAsBeforeTheFormer(t *testing.T) {
	w := newWorld(t)
	w.knowing()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	var before []string
	for range 3 {
		former, next := w.cluster.pki(), w.cluster.authority()
		w.config = w.configuration(func(c map[string]any) {
			kubelet := c["node"].(map[string]any)["kubelet"].(map[string]any)
			kubelet["caCertData"] = base64.StdEncoding.EncodeToString(next.trusted)
		})
		w.cluster.adopt(next)
		for range 2 { // the second one changes nothing
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.follows(former)
		}
		ca := w.read("/etc/kubernetes/certs/ca.crt")
		for _, old := range before {
			if strings.Contains(ca, old) || strings.Contains(w.bindings().CA, old) {
				t.Errorf("a CA from before the last rotation is still trusted:\n%s", ca)
			}
		}
		before = append(before, former)
	}
}

// If another cluster answers at the new address, the node keeps its own.
func TestAnotherCluster(t *testing.T) {
	for _, verb := range []func(*world) error{
		(*world).daemonReconciles, func(w *world) error { _, err := w.bootstrap(); return err },
	} {
		w, sim := azureWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		applied, since := w.pointer("applied"), w.kubeletSince()
		w.cluster.newCA("api-1.example")
		w.cluster.set(func() { w.cluster.uid = "00000000-0000-0000-0000-00000000c2c2" })
		w.publish(sim)
		err := verb(w)
		if err == nil || !strings.Contains(err.Error(), "another cluster") ||
			!strings.Contains(err.Error(), "aks-flex-node unbootstrap") {
			t.Errorf("the error is %v; want what to do about another cluster", err)
		}
		w.goesOn(applied, since)
		if list := w.rejected(); len(list) > 0 {
			t.Errorf("rejected: %+v", list)
		}
	}
}

// A machine that cannot learn its cluster's new address reports that it needs a new configuration,
// and accepts it.
func TestNewConfigurationNeeded(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	former, applied := w.cluster.pki(), w.pointer("applied")
	since := w.kubeletSince()
	w.cluster.newCA("api-1.example")
	const want = "a new configuration"
	c := w.condition(health.APIServerReachable)
	if c.Status != health.False || !strings.Contains(c.Message, want) ||
		!strings.Contains(c.Message, "node.kubelet.caCertData") {
		t.Errorf("the condition is %+v", c)
	}
	_, refused := w.bootstrap()
	for name, err := range map[string]error{"bootstrap": refused, "daemon": w.daemonReconciles()} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s says %v; want that it needs %s", name, err, want)
		}
	}
	w.goesOn(applied, since)
	w.knowing()
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.follows(former)
}

// A node that cannot follow its cluster does not reject its configuration: it follows as soon as it
// can.
func TestCannotFollowYet(t *testing.T) {
	t.Parallel()
	w, sim := azureWorld(t)
	w.config.Agent.ReadyTimeout = "20s" // the gate of the way back waits for it
	w.knowing()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	former, start := w.cluster.pki(), w.systemd.OnStart
	w.cluster.newCA("api-1.example")
	w.publish(sim)
	w.systemd.OnStart = func(unit, text string) error {
		ca := w.read("/etc/kubernetes/certs/ca.crt")
		if unit == "kubelet.service" && strings.Contains(ca, w.cluster.pki()) {
			return errors.New("this kubelet does not start")
		}
		return start(unit, text)
	}
	if err := w.daemonReconciles(); !rolledBack(err) {
		t.Errorf("the error is %v; want that it was rolled back", err)
	}
	if list := w.rejected(); len(list) > 0 {
		t.Errorf("rejected: %+v", list)
	}
	w.systemd.OnStart = start
	if err := w.daemonReconciles(); err != nil {
		t.Fatal(err)
	}
	w.follows(former)
}

// A node with a fault that does not come from following its cluster follows it: with little free
// space, or if kubelet has another setting. One that is not Ready at first keeps the new CA, too.
func TestFollowsWithAFault(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*world) (end func()){
		"disk": func(w *world) func() {
			w.facts = func(f *host.Facts) { f.Free["/var/lib"] = 1 << 20 }
			return nil
		},
		"maxPods": func(w *world) func() {
			reports := func(n *corev1.Node) { n.Status.Capacity = podCapacity("44") }
			w.cluster.set(func() { w.cluster.reports = reports; reports(w.cluster.nodes["edge-1"]) })
			return nil
		},
		"not ready": func(w *world) func() {
			ready := w.cluster.ready
			w.cluster.ready = func(string) bool { return false }
			return func() { w.cluster.set(func() { w.cluster.ready = ready }) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, sim := azureWorld(t)
			w.knowing()
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			former, end := w.cluster.pki(), begin(w)
			w.cluster.newCA("api-1.example")
			w.publish(sim)
			err := w.daemonReconciles()
			if end != nil {
				if !errors.Is(err, transition.ErrUndecided) || !strings.Contains(err.Error(), "network") {
					t.Errorf("the error is %v", err)
				}
				end()
				err = w.daemonReconciles()
			}
			if err != nil {
				t.Error(err)
			}
			w.follows(former)
		})
	}
}
