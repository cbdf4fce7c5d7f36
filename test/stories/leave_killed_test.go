package stories

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
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
		left, _ := w.agent().Machine.List(saved.StateDir)
		if len(left) > 1 && state.File != "enabled" { // one is the record of leaving
			t.Errorf("%s, the service is %s; left are %v", when, state.File, left)
		}
		return killed
	})
}

// A Node that could not be deleted while the machine had a credential is not forgotten by the next
// run: the provider is asked again, else the error is the same.
func TestNodeThatRemains(t *testing.T) {
	const file = "/etc/modules-load.d/aks-flex-node.conf"
	for _, follows := range []bool{false, true} {
		w := newWorld(t)
		join := func() error { _, err := w.bootstrap(); return err }
		if follows {
			given := w.delivery("7", keyed)
			w.provider = &provider{offer: given, changed: make(chan struct{})}
			join = func() error {
				_, err := w.joinAsDelivered()
				return err
			}
			if err := w.receive(given); err != nil {
				t.Fatal(err)
			}
		}
		if err := join(); err != nil {
			t.Fatal(err)
		}
		w.cluster.set(func() { w.cluster.keep = true })
		w.undoFailsAt(t, file)
		if follows {
			w.provider.leaves = func() { w.cluster.set(func() { w.cluster.remove("edge-1") }) }
		}
		err := w.unbootstrap()
		if follows && (err != nil || w.cluster.has("edge-1")) ||
			!follows && (err == nil || !strings.Contains(err.Error(), "cannot delete")) {
			t.Errorf("follows a provider: %t, %v", follows, err)
		}
		if _, err := os.Stat(w.root + saved.StateDir); !os.IsNotExist(err) {
			t.Errorf("records are left: %v", err)
		}
	}
}

// A machine whose certificate has ended asks its provider to delete the Node, and does not repeat
// that once it was heard; without a provider it warns that the Node remains.
func TestLeavesWithoutCertificate(t *testing.T) {
	const file = "/etc/modules-load.d/aks-flex-node.conf"
	w := newWorld(t)
	w.provider = &provider{offer: w.delivery("7", keyed), changed: make(chan struct{})}
	w.provider.leaves = func() { w.cluster.set(func() { w.cluster.remove("edge-1") }) }
	if err := w.receive(w.provider.offer); err != nil {
		t.Fatal(err)
	}
	_, err := w.joinAsDelivered()
	other := newWorld(t)
	_, err2 := other.bootstrap()
	if err := errors.Join(err, err2, os.RemoveAll(w.root+"/var/lib/kubelet/pki"),
		os.RemoveAll(other.root+"/var/lib/kubelet/pki")); err != nil {
		t.Fatal(err)
	}
	w.remove(t, file)
	if err := syscall.Mkfifo(w.root+file, 0o600); err != nil {
		t.Fatal(err)
	}
	err = w.unbootstrap()
	if err == nil || !strings.Contains(err.Error(), file) || w.cluster.has("edge-1") {
		t.Errorf("%v; the Node is there: %t", err, w.cluster.has("edge-1"))
	}
	w.remove(t, file)
	w.provider.down = true
	if err := errors.Join(w.unbootstrap(), other.unbootstrap()); err != nil {
		t.Error(err)
	}
	if log := other.log.String(); !strings.Contains(log, "cannot delete the Node edge-1") {
		t.Errorf("the log:\n%s", log)
	}
}

// mounted is a machine whose state directory is a mount point of its owner.
type mounted struct{ change.Machine }

func (m mounted) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	is, err := m.Machine.Observe(ctx, key)
	if dir, ok := is.(state.Dir); ok && dir.Path == saved.StateDir {
		dir.Mounted = true
		is = dir
	}
	return is, err
}

// A state directory that is mounted is emptied and stays; the lock goes after the records.
func TestMountedStateDir(t *testing.T) {
	for _, stays := range []bool{true, false} {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		err := w.run(func(ctx context.Context, a *change.Agent) error {
			machine := a.Machine.(*host.Host)
			touch := machine.Touch
			machine.Touch = func(what string) (func(), error) {
				_, locked := os.Stat(w.root + saved.RunDir + "/" + saved.LockFile)
				_, gone := os.Stat(w.root + saved.StateDir)
				if locked != nil && gone == nil && !stays {
					t.Errorf("to %s, without the lock", what)
				}
				return touch(what)
			}
			if stays {
				a.Machine = mounted{machine}
			}
			_, err := change.Unbootstrap(ctx, a, nil, change.Leave{})
			return err
		})
		left, gone := os.ReadDir(w.root + saved.StateDir)
		if err != nil || len(left) > 0 || os.IsNotExist(gone) == stays {
			t.Errorf("%v; left are %v, %v", err, left, gone)
		}
	}
}

// While a machine leaves, other commands name the one that finishes it.
func TestLeavingIsNamed(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	finish := func(doing string, err error) {
		if err == nil || !strings.Contains(err.Error(), "`aks-flex-node unbootstrap`") {
			t.Errorf("%s: %v", doing, err)
		}
	}
	left := transition.Transition{Kind: transition.Leave, Phase: transition.Undo}
	err := w.run(func(ctx context.Context, a *change.Agent) error {
		if err := leaves(ctx, a, left); err != nil {
			return err
		}
		_, err := change.Repair(ctx, a, nil)
		finish("drift --repair", err)
		_, err = change.Rollback(ctx, a, "")
		finish("rollback", err)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n := newWorld(t) // which has not joined yet
	if err := os.MkdirAll(n.root+saved.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	err = n.run(func(ctx context.Context, a *change.Agent) error {
		if err := leaves(ctx, a, left); err != nil {
			return err
		}
		s, err := inspect.ReadStatus(ctx, &a.Env)
		if finish("status", err); s.State != inspect.Leaving {
			t.Errorf("the state is %q", s.State)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.leave(nil); err != nil || r.Ready {
		t.Errorf("the result is %+v, %v", r, err)
	}
}
