package stories

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/daemon"
)

// daemonRuns runs one reconciliation of the daemon, with the present configuration file.
func (w *world) daemonRuns(unreadable error) error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		a.InService = true
		watcher := w.watcher(a)
		if unreadable != nil {
			watcher.Load = func() (change.Input, error) { return change.Input{Origin: "file"}, unreadable }
		}
		return watcher.Reconcile(ctx).Err
	})
}

// check runs one check of the daemon.
func (w *world) check() (found daemon.Finding) {
	w.t.Helper()
	err := w.run(func(ctx context.Context, a *change.Agent) (err error) {
		found, err = w.watcher(a).Check(ctx, nil)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// The daily sweep finds an artifact that was changed in the store: it is downloaded again, and its
// unit is restarted.
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
	w.check()
	found, started := w.check(), w.kubeletSince()
	if want := []string{"store:kubelet"}; !slices.Equal(found.Drift, want) {
		t.Errorf("drift is %v, want %v", found.Drift, want)
	}
	if c := w.condition("StoreIntact"); c.Reason != "Damaged" {
		t.Errorf("the condition is %+v", c)
	}
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		return w.watcher(a).Repair(ctx, found.Drift).Err
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
	for _, by := range []string{"the service", "drift --repair"} {
		w.write(entry, "something else")
		if err := os.Remove(w.root + saved.RunDir + "/sweep.json"); err != nil {
			t.Fatal(err)
		}
		w.check()
		w.write(entry, healthy) // another program repairs it before the agent does
		found := w.check()
		err := w.run(func(ctx context.Context, a *change.Agent) error {
			if by == "the service" {
				return w.watcher(a).Repair(ctx, found.Drift).Err
			}
			_, err := change.Repair(ctx, a, nil)
			return err
		})
		if err != nil || len(found.Drift) != 1 {
			t.Errorf("%s: drift %v, repair: %v", by, found.Drift, err)
		}
		if found := w.check(); len(found.Drift) > 0 {
			t.Errorf("%s: drift after the repair of an intact artifact: %v", by, found.Drift)
		}
	}
	w.wholly(t, "repaired")
}

// bootstrap does not report a node as healthy if its kubelet is not.
func TestNotHealthyIsNotNothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Agent.ReadyTimeout = "20s" // of the first bootstrap, too, also on a busy machine
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.sick.Store(true)
	if result, err := w.bootstrap(); err == nil {
		t.Errorf("kubelet is not healthy, and the result is %+v", result)
	}
}

// While the API server is down, checks request no token from Entra ID.
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

// kubelets returns the path of kubelet's file in the store.
func (w *world) kubelets() string {
	w.t.Helper()
	entry, err := os.Readlink(w.root + "/usr/local/bin/kubelet")
	if err != nil {
		w.t.Fatal(err)
	}
	return entry
}

// swept returns the record of the last sweep of the store.
func (w *world) swept() (s struct {
	At            time.Time
	Generation    string
	Left, Damaged []string
}) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.read(saved.RunDir+"/sweep.json")), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// The record of a sweep in the future, by a clock that was set back, does not prevent sweeps.
func TestSweepAfterTheClockWasSetBack(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.check()
	s := w.swept()
	s.At = time.Now().Add(48 * time.Hour)
	text, err := json.Marshal(map[string]any{"at": s.At, "generation": s.Generation})
	if err != nil {
		t.Fatal(err)
	}
	w.write(saved.RunDir+"/sweep.json", string(text))
	w.write(w.kubelets(), "something else")
	w.check()
	if found := w.check(); !slices.Equal(found.Drift, []string{"store:kubelet"}) {
		t.Errorf("drift is %v", found.Drift)
	}
}

// A sweep that runs out of time continues with the next check, without the file that was being read
// when its process ended. The agent beats for each file.
func TestSweepGoesOn(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.write(w.kubelets(), "something else")
	beats := 0
	check := func(until int) {
		t.Helper()
		err := w.run(func(ctx context.Context, a *change.Agent) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			beats = 0
			a.Beat = func() {
				if beats++; beats == until {
					cancel()
				}
			}
			_, err := w.watcher(a).Check(ctx, nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check(1)
	all := len(w.swept().Left)
	if all < 4 || beats != 1 {
		t.Fatalf("%d artifacts are left after %d beats", all, beats)
	}
	check(3) // within the second artifact or later
	left := len(w.swept().Left)
	if left == 0 || left > all {
		t.Errorf("%d artifacts are left of %d", left, all)
	}
	check(-1)
	s := w.swept()
	if len(s.Left) > 0 || beats < all || !slices.Equal(s.Damaged, []string{"kubelet"}) {
		t.Errorf("%+v after %d beats", s, beats)
	}
	check(-1)
	if beats > 0 {
		t.Errorf("it is read again: %d beats", beats)
	}
}

// A check on a machine whose /run is full still finds what to repair. Only its status is not kept.
func TestCheckWithAFullRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = w.configuration(policy("repair"))
	disk := w.ownDisk(saved.RunDir, "1m")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.fill(disk + "/full")
	w.write(forwardSysctl, "0\n")
	found := w.check()
	if want := []string{"sysctl:net.ipv4.ip_forward"}; !slices.Equal(found.Repair, want) {
		t.Errorf("to repair are %v, want %v", found.Repair, want)
	}
	for _, record := range []string{"status", "sweep"} {
		if log := w.log.String(); !strings.Contains(log, saved.RunDir+"/"+record+".json: no space left") {
			t.Errorf("%s.json is not mentioned in the log:\n%s", record, log)
		}
	}
}
