package stories

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// daemonRuns is one reconciliation of the daemon, with the configuration file as it is now.
func (w *world) daemonRuns(unreadable error) error {
	return w.run(func(ctx context.Context, a *agent.Agent) error {
		a.InService = true
		watcher := w.watcher(a)
		if unreadable != nil {
			watcher.Load = func() (agent.Input, error) { return agent.Input{Origin: "file"}, unreadable }
		}
		return watcher.Reconcile(ctx)
	})
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
	if err := os.Remove(w.root + saved.RunDir + "/sweep.json"); err != nil { // as a day later
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
