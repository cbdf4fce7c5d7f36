package stories

import (
	"fmt"
	"os"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// leavingKilledAt returns a node whose unbootstrap was killed at its n-th touch, and the state of
// the machine before it joined. ended reports whether the unbootstrap had ended before.
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

// An unbootstrap that was killed is finished by the daemon, which never makes the machine a node
// again.
func TestLeavingIsFinished(t *testing.T) {
	t.Parallel()
	for n := 2; ; n += 7 {
		w, before, ended := leavingKilledAt(t, n)
		if ended {
			return
		}
		if _, err := os.Stat(w.root + saved.StateDir + "/transition.json"); err != nil {
			continue // it had not begun, or had ended
		}
		when := fmt.Sprintf("killed at touch %d", n)
		if err := w.daemonRuns(nil); transition.Of(err).Kind != transition.Left {
			t.Errorf("%s: the daemon ends with %v", when, err)
		}
		w.sameAs(t, when, before)
	}
}

// The agent's own service is disabled last: a machine that is rebooted while it is given back has a
// service that goes on with it.
func TestServiceIsDisabledLast(t *testing.T) {
	t.Parallel()
	for n := 2; ; n += 9 {
		w := newWorld(t)
		w.write("/etc/systemd/system/"+change.Service,
			"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if there, err := change.EnableService(t.Context(), w.agent()); err != nil || !there {
			t.Fatalf("the service is installed: %v, %v", there, err)
		}
		w.blow(n)
		err := w.unbootstrap()
		w.blow(-1)
		state, _ := w.systemd.Unit(t.Context(), change.Service)
		if err == nil {
			if state.File != "disabled" {
				t.Errorf("after the end the service is %s", state.File)
			}
			return
		}
		_, gone := os.Stat(w.root + saved.StateDir + "/bindings.json")
		if gone == nil && state.File != "enabled" {
			t.Errorf("killed at touch %d, the service is %s", n, state.File)
		}
	}
}
