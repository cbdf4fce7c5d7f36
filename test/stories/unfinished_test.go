package stories

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// leaves records a transition as an interrupted run leaves it, to the applied generation.
func leaves(ctx context.Context, a *change.Agent, t transition.Transition) error {
	h, err := change.OpenLocked(ctx, a, "story")
	if err != nil {
		return err
	}
	defer h.Close()
	t.From, t.To = h.Saved.AppliedID(), h.Saved.AppliedID()
	return h.Store.SaveTransition(ctx, t)
}

// record returns the transition on disk.
func (w *world) record() (t transition.Transition) {
	w.t.Helper()
	if _, err := w.agent().Records().Load(saved.TransitionFile, &t); err != nil {
		w.t.Error(err)
	}
	return t
}

// A repair that was interrupted does not let a change begin on a paused machine.
func TestPausedAfterAnUnfinishedRepair(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(41)))
		s.until(10*time.Minute, "the first change is applied", s.takes("41"))
		if _, err := change.SetPause(t.Context(), s.agent(), time.Hour, "a new disk"); err != nil {
			t.Fatal(err)
		}
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(42)))
		waits := s.waits(health.MachinePaused, "a new disk")
		s.until(3*time.Minute, "the change waits", waits)
		err := leaves(t.Context(), s.agent(),
			transition.Transition{Kind: transition.Repair, Phase: transition.Apply})
		if err != nil {
			t.Fatal(err)
		}
		s.restart()
		s.sleep(10 * time.Minute)
		if left := s.record(); left.Kind != "" || !s.takes("41")() || !waits() {
			t.Errorf("the record is %+v, and the change does not wait", left)
		}
	})
}

// A repair by hand of one thing finishes what an interrupted repair followed: half a change, or
// half an unbootstrap. It does not clear that record by failing.
func TestRepairFinishesHalfAChange(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.write(forwardSysctl, "0\n")
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		return leaves(ctx, a, transition.Transition{Kind: transition.Repair, Phase: transition.Apply,
			Follows: transition.Leave, Touched: true, Cordoned: true})
	})
	if err != nil {
		t.Fatal(err)
	}
	ready := w.cluster.ready
	w.cluster.ready = func(string) bool { return false }
	if err := w.repair("node:labels"); err == nil {
		t.Error("it succeeds although the Node is not Ready")
	}
	left := w.record()
	if !left.Touched || !left.Cordoned || left.Follows != transition.Leave {
		t.Errorf("the record is %+v", left)
	}
	w.cluster.ready = ready
	if err := w.repair("node:labels"); err != nil {
		t.Error(err)
	}
	if left := w.record(); left.Kind != "" || w.read(forwardSysctl) == "0\n" {
		t.Errorf("the record is %+v, and not everything was repaired", left)
	}
}

// A repair of one thing that was interrupted leaves the rest to the owner.
func TestRepairOfOneThingIsFinished(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.write(forwardSysctl, "0\n")
	if err := w.kernel.SwapOn("/dev/zram0", 100); err != nil {
		t.Fatal(err)
	}
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		return leaves(ctx, a, transition.Transition{Kind: transition.Repair, Phase: transition.Apply,
			Ungated: true, Things: []string{swapKey}})
	})
	if err = errors.Join(err, w.daemonReconciles()); err != nil {
		t.Error(err)
	}
	if w.swapped() || w.underWay() != "" || w.read(forwardSysctl) != "0\n" {
		t.Errorf("swap is on: %t, under way is %s, the sysctl is %s", w.swapped(), w.underWay(),
			w.read(forwardSysctl))
	}
}

// Damage to the previous generation, which only a rollback by hand needs, stops no change and no
// repair.
func TestPreviousIsDamaged(t *testing.T) {
	w := newWorld(t)
	for _, timeout := range []string{"2m", "3m"} {
		w.config.Agent.ReadyTimeout = timeout
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
	}
	id, err := os.Readlink(filepath.Join(w.root, saved.StateDir, string(generation.Previous)))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.root, saved.StateDir, "generations", path.Base(id), "node.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.write(forwardSysctl, "0\n")
	if _, err := w.drift(true); err != nil {
		t.Errorf("a repair: %v", err)
	}
	w.config.Agent.ReadyTimeout = "4m"
	if _, err := w.bootstrap(); err != nil {
		t.Errorf("a change: %v", err)
	}
}

// A machine whose resource was deleted knows after a reboot which configuration file it must not
// join with again, until an operator joins with it by hand.
func TestFormerFile(t *testing.T) {
	w := newWorld(t)
	former := func() string {
		t.Helper()
		text, err := w.agent().Records().Read(saved.FormerFile)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		return string(text)
	}
	w.write(saved.ConfigFile, "{}")
	if err := w.leaveDeleted(); err != nil || former() == "" { // before it has joined
		t.Fatalf("%v, %q", err, former())
	}
	for range 2 { // the second time as after a crash
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if former() != "" {
			t.Error("a node has a former configuration")
		}
		for range 2 {
			if err := w.leaveDeleted(); err != nil {
				t.Fatal(err)
			}
			if former() == "" {
				t.Error("the configuration is not known to be the former one")
			}
		}
	}
	if err := w.unbootstrap(); err != nil || former() != "" {
		t.Errorf("after unbootstrap: %v, %q", err, former())
	}
}

// Killed while it gives up a configuration that it has not joined with, the service either has that
// configuration still, or knows the file that it must not use instead.
func TestFormerFileComesFirst(t *testing.T) {
	for n := 0; ; n++ {
		w := newWorld(t)
		w.write(saved.ConfigFile, "{}")
		w.write(saved.BundleFile, "{}")
		w.blow(n)
		err := w.leaveDeleted()
		w.blow(-1)
		former, err2 := w.agent().Records().Read(saved.FormerFile)
		if w.bundle() == "" && former == nil || err2 != nil {
			t.Fatalf("after %d touches it would join with the file (%v)", n, err2)
		}
		if err == nil {
			break
		}
	}
}
