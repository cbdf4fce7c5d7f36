package stories

import (
	"os"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// leavingKilledAt returns a node whose unbootstrap was killed at its n-th touch, unless it ended
// before, and the state of the machine before its join.
func leavingKilledAt(t *testing.T, n int) (w *world, before string, killed bool) {
	t.Helper()
	w = newWorld(t)
	before = w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	return w, before, w.killed(t, n, w.unbootstrap)
}

// An unbootstrap that was killed anywhere is finished by the next one; a bootstrap instead makes
// the machine a node again.
func TestBackFromLeaving(t *testing.T) {
	t.Parallel()
	kills(t, 3, 12, func(n int, when string) bool {
		w, before, killed := leavingKilledAt(t, n)
		if !killed {
			return false
		}
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
		return true
	})
}

// The daemon finishes an unbootstrap that was killed, and never makes the machine a node again.
func TestLeavingIsFinished(t *testing.T) {
	t.Parallel()
	kills(t, 2, 7, func(n int, when string) bool {
		w, before, killed := leavingKilledAt(t, n)
		if !killed {
			return false
		}
		if _, err := os.Stat(w.root + saved.StateDir + "/transition.json"); err != nil {
			return true // it had not begun, or had ended
		}
		if err := w.daemonRuns(nil); transition.Of(err).Kind != transition.Left {
			t.Errorf("%s: the daemon ends with %v", when, err)
		}
		w.sameAs(t, when, before)
		return true
	})
}

// The agent's own service is disabled last: after a reboot during unbootstrap the service finishes
// it.
func TestServiceIsDisabledLast(t *testing.T) {
	t.Parallel()
	kills(t, 2, 9, func(n int, when string) bool {
		w := newWorld(t)
		w.write("/etc/systemd/system/"+change.Service,
			"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if there, err := change.EnableService(t.Context(), w.agent()); err != nil || !there {
			t.Fatalf("the service is installed: %v, %v", there, err)
		}
		killed := w.killed(t, n, w.unbootstrap)
		state, _ := w.systemd.Unit(t.Context(), change.Service, true)
		if !killed && state.File != "disabled" {
			t.Errorf("after the end the service is %s", state.File)
		}
		_, gone := os.Stat(w.root + saved.StateDir + "/bindings.json")
		if gone == nil && state.File != "enabled" {
			t.Errorf("%s, the service is %s", when, state.File)
		}
		return killed
	})
}
