package stories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// daemonRuns is one reconciliation of the daemon, with the configuration file as it is now.
func (w *world) daemonRuns(unreadable error) error {
	return w.run(func(ctx context.Context, a *agent.Agent) error {
		a.InService = true
		watcher := &agent.Watcher{Agent: a, Load: func() (agent.Input, error) {
			if unreadable != nil {
				return agent.Input{Origin: "file"}, unreadable
			}
			return agent.Input{Config: w.config, Origin: "file"}, nil
		}}
		return watcher.Reconcile(ctx)
	})
}

// other is a configuration that differs from the usual one in what kubelet does.
func (w *world) other(pods int) config.Config {
	return w.configuration(func(c map[string]any) {
		c["node"].(map[string]any)["maxPods"] = pods
	})
}

// A change that was killed half-way is never left half-way by the daemon, whatever the
// configuration file says by then: what was applied before, something else, something that has
// failed before, or nothing that can be read.
func TestHalfChanged(t *testing.T) {
	t.Parallel()
	invalid := config.Problems{{Path: "node", Message: "cannot be read"}}
	tests := []struct {
		name   string
		file   func(w *world, before, rejected config.Config)
		failed bool // the configuration in the file was rejected before
		err    error
		pods   []string
	}{
		{"as it was", func(w *world, before, _ config.Config) { w.config = before },
			false, nil, []string{"110"}},
		{"another", func(w *world, _, _ config.Config) { w.config = w.other(44) },
			false, nil, []string{"44"}},
		{"rejected", func(w *world, _, rejected config.Config) { w.config = rejected },
			true, nil, []string{"110", "42"}},
		{"unreadable", func(*world, config.Config, config.Config) {},
			false, invalid, []string{"110", "42"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for n := 6; ; n += 9 {
				w := newWorld(t)
				if _, err := w.bootstrap(); err != nil {
					t.Fatal(err)
				}
				before, rejected := w.config, w.rejects(43)
				w.config = w.other(42)
				w.blow(n)
				_, err := w.bootstrap()
				w.blow(-1)
				if err == nil {
					return
				}
				tt.file(w, before, rejected)
				err = w.daemonRuns(tt.err)
				_, final := errors.AsType[*daemon.FinalError](err)
				if final != (tt.failed || tt.err != nil) || !final && err != nil {
					t.Fatalf("killed at touch %d: the daemon ends with %v", n, err)
				}
				when := fmt.Sprintf("killed at touch %d", n)
				w.wholly(t, when)
				if is := maxPods(w.root); !slices.Contains(tt.pods, is) {
					t.Errorf("%s: kubelet takes %s pods, want %v", when, is, tt.pods)
				}
			}
		})
	}
}

// rejects has a change fail and be rolled back, and returns its configuration.
func (w *world) rejects(pods int) config.Config {
	w.t.Helper()
	before, start := w.config, w.systemd.OnStart
	w.refuseChangedKubelet()
	failing := w.other(pods)
	w.config = failing
	if _, err := w.bootstrap(); err == nil {
		w.t.Fatal("a kubelet that does not start is committed")
	}
	w.config, w.systemd.OnStart = before, start
	return failing
}

// accepted is the reason of the condition ConfigurationAccepted.
func (w *world) accepted() string {
	w.t.Helper()
	reason := ""
	err := w.run(func(ctx context.Context, a *agent.Agent) error {
		s, err := a.Status(ctx)
		for _, c := range s.Conditions {
			if c.Type == health.ConfigurationAccepted {
				reason = c.Reason
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return reason
}

// A configuration that was rejected is what is wrong with a node only as long as it is the one that
// is wanted.
func TestRejectedLongAgo(t *testing.T) {
	const rejected, well = "Rejected", "AsExpected"
	tests := map[string]struct {
		cure func(w *world, before config.Config) error
	}{
		"another configuration": {func(w *world, _ config.Config) error {
			w.config = w.other(44)
			return w.daemonRuns(nil)
		}},
		"the former one to the daemon": {func(w *world, before config.Config) error {
			w.config = before
			return w.daemonRuns(nil)
		}},
		"the former one to bootstrap": {func(w *world, before config.Config) error {
			w.config = before
			_, err := w.bootstrap()
			return err
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			before, failing := w.config, w.rejects(43)
			wants := func(reason string) {
				t.Helper()
				if is := w.accepted(); is != reason {
					t.Errorf("the condition is %s, want %s", is, reason)
				}
			}
			fails := func() {
				t.Helper()
				w.config = failing
				if _, final := errors.AsType[*daemon.FinalError](w.daemonRuns(nil)); !final {
					t.Error("the daemon tries a rejected configuration again")
				}
				wants(rejected)
			}
			fails()
			w.harm()
			if _, err := w.drift(true); err != nil {
				t.Fatal(err)
			}
			wants(rejected) // a repair accepts nothing
			if err := tt.cure(w, before); err != nil {
				t.Fatal(err)
			}
			wants(well)
			fails() // it is wanted again
		})
	}
}

// upgrade makes the configuration one of the next minor version, which is in the store of artifacts
// too.
func (w *world) upgrade() {
	w.t.Helper()
	w.config = w.configuration(func(c map[string]any) {
		c["kubernetes"].(map[string]any)["version"] = "1.35.4"
		for _, name := range []string{"kubelet", "kubectl", "kubeadm"} {
			dir := filepath.Join(w.store, "dl.k8s.io/v1.35.4/bin/linux/amd64")
			text := "# " + name + " 1.35.4\n"
			err := os.MkdirAll(dir, 0o755)
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			if err != nil {
				w.t.Fatal(err)
			}
			overrides := c["artifacts"].(map[string]any)["overrides"].(map[string]any)
			overrides[name] = map[string]any{"sha256": state.Digest(text)}
		}
	})
}

func (w *world) cordoned() bool {
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	n := w.cluster.nodes["edge-1"]
	return n != nil && n.Spec.Unschedulable
}

// keepsCordon fails when the Node of a machine whose Kubernetes version changes takes new pods
// before that change is committed.
func (w *world) keepsCordon() {
	healthy, ready := w.cluster.nodes["edge-1"].Status.NodeInfo.KubeletVersion, w.cluster.ready
	start := w.systemd.OnStart
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "kubelet.service" && !w.cordoned() {
			w.t.Error("kubelet is replaced while the Node takes pods")
		}
		return start(unit, text)
	}
	w.cluster.ready = func(name string) bool {
		n := w.cluster.nodes[name]
		record, _ := os.ReadFile(w.root + "/var/lib/aks-flex-node/transition.json")
		proving := strings.Contains(string(record), `"phase": "gate"`)
		if proving && n.Status.NodeInfo.KubeletVersion != healthy && !n.Spec.Unschedulable {
			w.t.Error("the Node takes pods before it has proved to be healthy")
		}
		return ready(name)
	}
}

// The Node of a machine whose Kubernetes version changes takes no pods until the change is
// committed; one that its operator has cordoned takes none afterwards.
func TestCordon(t *testing.T) {
	for _, operators := range []bool{false, true} {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.cluster.set(func() { w.cluster.nodes["edge-1"].Spec.Unschedulable = operators })
		w.upgrade()
		w.keepsCordon()
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if w.cordoned() != operators {
			t.Errorf("cordoned by the operator: %v, and afterwards: %v", operators, w.cordoned())
		}
	}
}

// A Node that cannot be observed is not drained.
func TestNoCordonNoDrain(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.upgrade()
	w.config.Agent.ReadyTimeout = "1s"
	w.cluster.set(func() { w.cluster.down = true })
	_, err := w.bootstrap()
	if err == nil || !strings.Contains(err.Error(), "cannot cordon Node edge-1") {
		t.Errorf("the error is %v", err)
	}
}

// leavingKilledAt is a node whose unbootstrap was killed at its n-th touch, and how the machine was
// before it joined. It tells whether the unbootstrap had ended before.
func leavingKilledAt(t *testing.T, n int) (w *world, before string, ended bool) {
	t.Helper()
	w = newWorld(t)
	before = w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.blow(n)
	err := w.unbootstrap()
	w.blow(-1)
	return w, before, err == nil
}

// An unbootstrap that was killed anywhere is finished by the next one, and a bootstrap instead
// makes the machine a node again.
func TestBackFromLeaving(t *testing.T) {
	t.Parallel()
	for n := 3; ; n += 12 {
		w, before, ended := leavingKilledAt(t, n)
		if ended {
			return
		}
		when := fmt.Sprintf("leaving was killed at touch %d", n)
		if _, err := w.bootstrap(); err != nil {
			t.Fatalf("%s, and bootstrap ends with %v", when, err)
		}
		w.wholly(t, when)
		if !w.cluster.has("edge-1") {
			t.Errorf("%s, and bootstrap does not register the Node", when)
		}
		if err := w.unbootstrap(); err != nil {
			t.Fatal(err)
		}
		w.sameAs(t, when, before)
	}
}

// A node whose certificate has expired, or is lost, joins again with a new bootstrap token.
func TestLostCertificate(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	dir := w.root + "/var/lib/kubelet/"
	if err := errors.Join(os.RemoveAll(dir+"pki"), os.Remove(dir+"kubeconfig")); err != nil {
		t.Fatal(err)
	}
	w.cluster.set(func() { w.cluster.token = "abcdef.fedcba9876543210" })
	if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), "bootstrap token") {
		t.Errorf("with the token of before: %v", err)
	}
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil {
		t.Fatalf("with a new token: %v", err)
	}
	w.wholly(t, "joined again")
	if _, err := os.Stat(dir + "bootstrap-kubeconfig"); err == nil {
		t.Error("the new token is still on disk")
	}
}

// check is one check of the daemon.
func (w *world) check() (found daemon.Finding) {
	w.t.Helper()
	err := w.run(func(ctx context.Context, a *agent.Agent) (err error) {
		found, err = w.watcher(a).Check(ctx, nil)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// An artifact that somebody has changed in the store is found once a day, fetched again, and what
// runs it is restarted.
func TestDamagedStore(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if found := w.check(); len(found.Drift) > 0 {
		t.Fatalf("drift of a node that was just made: %v", found.Drift)
	}
	entry, err := os.Readlink(w.root + "/usr/local/bin/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	healthy := w.read(entry)
	w.write(entry, "something else")
	if found := w.check(); len(found.Drift) > 0 {
		t.Errorf("the store is read at every check: %v", found.Drift)
	}
	if err := os.Remove(w.root + agent.RunDir + "/sweep.json"); err != nil { // as a day later
		t.Fatal(err)
	}
	found, started := w.check(), w.kubeletSince()
	if want := []string{"store:kubelet"}; !slices.Equal(found.Drift, want) {
		t.Errorf("drift is %v, want %v", found.Drift, want)
	}
	if c := w.condition(health.StoreIntact); c.Reason != "Damaged" {
		t.Errorf("the condition is %+v", c)
	}
	err = w.run(func(ctx context.Context, a *agent.Agent) error {
		return w.watcher(a).Repair(ctx, found.Drift)
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.read(entry) != healthy || !w.kubeletSince().After(started) {
		t.Error("kubelet is not replaced, or not restarted")
	}
	if found := w.check(); len(found.Drift) > 0 {
		t.Errorf("drift after the repair: %v", found.Drift)
	}
	w.wholly(t, "repaired")
}

// An unbootstrap that was killed is finished by the daemon, which never makes the machine a node
// again.
func TestLeavingIsFinished(t *testing.T) {
	t.Parallel()
	for n := 2; ; n += 7 {
		w, before, ended := leavingKilledAt(t, n)
		if ended {
			return
		}
		if _, err := os.Stat(w.root + agent.StateDir + "/transition.json"); err != nil {
			continue // it had not begun, or had ended
		}
		when := fmt.Sprintf("killed at touch %d", n)
		if err := w.daemonRuns(nil); !errors.Is(err, daemon.ErrLeft) {
			t.Errorf("%s: the daemon ends with %v", when, err)
		}
		w.sameAs(t, when, before)
	}
}

// What could not be taken back in Azure does not make the machine a node: it can become one again,
// and can leave again.
func TestArcNotLeft(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	enrolled := `{"machineId": "/subscriptions/x", "connected": true}`
	w.write(agent.StateDir+"/arc.json", enrolled)
	for range 2 {
		if err := w.unbootstrap(); err == nil || !strings.Contains(err.Error(), "Arc") {
			t.Fatalf("the error is %v", err)
		}
		err := w.daemonRuns(nil)
		if err == nil || errors.Is(err, daemon.ErrLeft) || w.cluster.has("edge-1") {
			t.Errorf("the daemon ends with %v", err)
		}
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.wholly(t, "a node again")
	_, err := w.agent().Unbootstrap(t.Context(), nil, agent.Leave{
		Options: transition.Options{KeepArc: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// Records that cannot be read keep nobody from leaving: the ledger is all that it takes.
func TestLeavesWithoutRecords(t *testing.T) {
	for _, name := range []string{
		"bindings.json", "credentials.json", "rejected.json", "transition.json", "generations",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.tree()
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(w.root + agent.StateDir + "/" + name); err != nil {
				t.Fatal(err)
			}
			w.write(agent.StateDir+"/"+name, "{ this is not JSON")
			if err := w.unbootstrap(); err != nil {
				t.Fatal(err)
			}
			w.same(before)
		})
	}
}

// The pod subnet of the configuration comes and goes with it, forward and back.
func TestPodSubnetChanges(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	subnet := func(cidr string, pods int) {
		w.config = w.configuration(func(c map[string]any) {
			c["node"].(map[string]any)["maxPods"] = pods
			if cidr != "" {
				c["cni"] = map[string]any{"podCIDR": cidr}
			}
		})
	}
	configured := func(cidr string) {
		t.Helper()
		text := w.read("/etc/cni/net.d/99-aks-flex-node.conflist")
		if !strings.Contains(text, `"subnet": "`+cidr+`"`) {
			t.Errorf("the pod network is not on %s:\n%s", cidr, text)
		}
		w.wholly(t, cidr)
	}
	subnet("10.9.0.0/24", 110)
	plan, err := w.agent().Plan(t.Context(), agent.Input{Config: w.config})
	result, bootErr := w.bootstrap()
	if err = errors.Join(err, bootErr); err != nil || len(plan.Changes) != result.Changes {
		t.Errorf("%v, planned %+v, and made %d changes", err, plan.Changes, result.Changes)
	}
	configured("10.9.0.0/24")
	before, start := w.config, w.systemd.OnStart
	w.refuseChangedKubelet()
	subnet("10.8.0.0/24", 42)
	if _, err := w.bootstrap(); err == nil {
		t.Error("a kubelet that does not start is committed")
	}
	configured("10.9.0.0/24")
	w.config, w.systemd.OnStart = before, start
	subnet("", 110)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	configured("10.244.7.0/24")
}

// What a plan tells is what bootstrap does, on the Node object too.
func TestPlanOfLabels(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(func(c map[string]any) {
		c["node"].(map[string]any)["labels"] = map[string]any{"example.com/floor": "2"}
	})
	plan, err := w.agent().Plan(t.Context(), agent.Input{Config: w.config})
	if err != nil {
		t.Fatal(err)
	}
	result, err := w.bootstrap()
	if err != nil || result.Changes != len(plan.Changes) || result.Changes < 3 {
		t.Errorf("%v, planned %+v, and made %d changes", err, plan.Changes, result.Changes)
	}
}

// A join that was begun with a CA, and is begun again with another one, trusts only that.
func TestJoinForgetsCA(t *testing.T) {
	w := newWorld(t)
	w.cluster.newCA("api.example")
	former := w.cluster.pki()
	w.config = w.configuration()
	w.blow(60)
	if _, err := w.bootstrap(); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.blow(-1)
	w.cluster.newCA("api.example")
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.read("/etc/kubernetes/certs/ca.crt"), former) {
		t.Error("kubelet trusts the CA of a join that never was")
	}
}

// bootstrap does not call a node healthy whose kubelet is not.
func TestNotHealthyIsNotNothingToDo(t *testing.T) {
	w := newWorld(t)
	w.config.Agent.ReadyTimeout = "1s"
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.sick.Store(true)
	if result, err := w.bootstrap(); err == nil {
		t.Errorf("kubelet is not healthy, and the result is %+v", result)
	}
}

// While the API server is down, nobody asks Entra ID for a token at each check.
func TestChecksAskForNoToken(t *testing.T) {
	w, sim := azureWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.cluster.set(func() { w.cluster.down = true })
	before := sim.Requests(azuresim.Entra)
	for range 3 {
		w.check()
	}
	if n := sim.Requests(azuresim.Entra) - before; n > 0 {
		t.Errorf("%d requests of Entra ID in three checks", n)
	}
}
