package stories

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

func rolledBack(err error) bool {
	return transition.Of(err).Kind == transition.RolledBack
}

// azureOff switches off Azure and its metadata services.
func azureOff(sim *azuresim.Sim, off *atomic.Bool) {
	off.Store(true)
	sim.Adjust(func(k *azuresim.Knobs) {
		k.Faults = map[azuresim.Service]azuresim.Fault{
			azuresim.Entra: {Outage: true}, azuresim.ARM: {Outage: true},
		}
	})
}

// modeWorld returns a node of each mode in turn.
func modeWorld(t *testing.T, n int, off *atomic.Bool) (*world, *azuresim.Sim, mode) {
	t.Helper()
	w, sim := azureWorld(t)
	certificate, file := w.applicationCertificate("sp", time.Hour)
	how := modes(file)[n]
	w.cluster.bootstrappers = true
	w.programs = withMachine(t, w, sim, off.Load).programs
	sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
		Secrets:      []azuresim.Secret{{Value: canary}, {Value: newSecret}},
		Certificates: []string{certificate}})
	w.config = w.modeConfig(how.azure)
	return w, sim, how
}

// heard makes the Node Ready only once the API server has admitted the running kubelet.
func (w *world) heard() {
	var admitted atomic.Bool
	start, ready := w.systemd.OnStart, w.cluster.ready
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "kubelet.service" {
			admitted.Store(false)
		}
		return start(unit, text)
	}
	w.cluster.reports = func(*corev1.Node) { admitted.Store(true) }
	w.cluster.ready = func(name string) bool { return admitted.Load() && ready(name) }
}

// A change that fails while Azure is switched off is rolled back in every mode: everything that it
// takes is on the machine. kubelet has its previous token, and no transition is left.
func TestGoesBackWithoutAzure(t *testing.T) {
	for n, how := range modes("") {
		t.Run(how.name, func(t *testing.T) {
			var off atomic.Bool
			w, sim, how := modeWorld(t, n, &off)
			before := w.tree()
			w.heard()
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			applied := w.pointer("applied")
			w.refuseChangedKubelet()
			start := w.systemd.OnStart
			w.systemd.OnStart = func(unit, text string) error {
				err := start(unit, text)
				if err != nil {
					azureOff(sim, &off)
				}
				return err
			}
			w.config = w.modeConfig(how.another, nodeSetting("maxPods", 42))
			if _, err := w.bootstrap(); !rolledBack(err) {
				t.Fatalf("the error is %v; want that the change was rolled back", err)
			}
			if !off.Load() {
				t.Fatal("the change did not reach kubelet")
			}
			w.goesOn(applied, w.kubeletSince())
			if how.azure != nil && w.config.Azure.KubeletCredential == "token" {
				err := w.run(func(ctx context.Context, a *change.Agent) error {
					_, err := inspect.Token(ctx, &a.Env)
					return err
				})
				if err != nil {
					t.Errorf("kubelet gets no token any more: %v", err)
				}
			}
			if list := w.rejected(); len(list) != 1 || !strings.Contains(list[0].Reason, "does not start") {
				t.Errorf("rejected: %+v", list)
			}
			if n := w.cluster.node1(); n.Status.Capacity.Pods().Value() != 110 {
				t.Errorf("the Node takes %s pods", n.Status.Capacity.Pods())
			}
			off.Store(false)
			sim.Adjust(func(k *azuresim.Knobs) { k.Faults = nil })
			if err := w.unbootstrap(); err != nil {
				t.Errorf("unbootstrap: %v", err)
			}
			w.same(before)
		})
	}
}

// A kubelet that uses tokens, and has none and gets none, does not prevent a rollback: the restored
// node cannot be proved, and works again as soon as its issuer does.
func TestGoesBackWithoutToken(t *testing.T) {
	t.Parallel()
	w, sim := azureWorld(t)
	w.config.Agent.ReadyTimeout = "20s" // the gate of the way back waits for it
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied := w.pointer("applied")
	healthy := w.config
	w.refuseChangedKubelet()
	start := w.systemd.OnStart
	w.systemd.OnStart = func(unit, text string) error {
		err := start(unit, text)
		if err != nil {
			azureOff(sim, new(atomic.Bool))
			err = errors.Join(err, w.forgetTokens())
		}
		return err
	}
	w.config = w.configuration(w.azure(nil), nodeSetting("maxPods", 42))
	err := w.service(func(ctx context.Context, a *change.Agent) error {
		_, err := change.Bootstrap(ctx, a, change.Input{Config: w.config, Origin: "file"})
		return err
	})
	if !rolledBack(err) {
		t.Fatalf("the error is %v; want that the change was rolled back", err)
	}
	w.goesOn(applied, w.kubeletSince())
	if w.warned("could not be checked") != 1 {
		t.Error("nothing tells that the restored node could not be checked")
	}
	sim.Adjust(func(k *azuresim.Knobs) { k.Faults = nil })
	w.config = healthy
	if _, err := w.bootstrap(); err != nil {
		t.Errorf("with Azure back: %v", err)
	}
}

// An identity without any role is detected when kubelet uses it. kubelet has its former one back
// before anything waits for it, without Azure.
func TestGoesBackFromPowerlessIdentity(t *testing.T) {
	t.Parallel()
	w, sim := azureWorld(t)
	w.heard()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied := w.pointer("applied")
	another := w.anotherIdentity(sim)
	sim.Revoke(anotherObject)
	w.illWhenChanged(func(w *world) func() {
		azureOff(sim, new(atomic.Bool))
		return func() {}
	})
	w.config = w.configuration(another, nodeSetting("maxPods", 42))
	w.config.Agent.ReadyTimeout = "2s"
	if _, err := w.bootstrap(); !rolledBack(err) {
		t.Fatalf("the error is %v; want that the change was rolled back", err)
	}
	w.goesOn(applied, w.kubeletSince())
	if found := w.holds(newSecret); len(found) > 0 {
		t.Errorf("the refused secret is in %v", found)
	}
}

// A node that is not healthy after a rollback is distinguished from one whose API server is silent.
// The rollback stays under way, and finishes once the node is healthy.
func TestRollbackThatIsNotHealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Agent.ReadyTimeout = "20s" // of the first bootstrap, too, also on a busy machine
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	healthy, ready := w.config, w.cluster.ready
	w.cluster.set(func() { w.cluster.ready = func(string) bool { return false } })
	w.config.Node.MaxPods = 42
	_, err := w.bootstrap()
	if err == nil || rolledBack(err) || !strings.Contains(err.Error(), "cannot go back") {
		t.Errorf("the error is %v; want that the node is not healthy", err)
	}
	w.cluster.set(func() { w.cluster.ready = ready })
	w.config = healthy
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.steady("with the node well again")
}
