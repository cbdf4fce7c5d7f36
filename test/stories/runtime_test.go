package stories

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

const containerd = "unit:containerd.service"

// served returns the answer of the container runtime, if it accepts connections: none for the first
// w.hung calls, and none for kubelet before it was started w.deaf times.
func (w *world) served(context.Context) error {
	switch {
	case w.exits.Load():
		return unix.ECONNREFUSED
	case w.hung.Add(-1) >= 0:
		return kube.ErrRuntimeSilent
	case w.deaf.Load() > 0:
		return kube.ErrNoRuntimeService
	}
	w.hung.Store(0)
	return nil
}

// restarts counts the starts of containerd from now on.
func (w *world) restarts() func() int64 {
	const many = 1 << 20
	w.deaf.Add(many)
	before := w.deaf.Load()
	return func() int64 { return before - w.deaf.Load() }
}

// A containerd that runs without its CRI plugin is found, with the cause, and restarted if drift is
// repaired.
func TestRuntimeWithoutCRI(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		kubelet := s.started()
		s.deaf.Store(1)
		missing := func() bool {
			c := s.condition(health.ContainerdRunning)
			return c.Reason == "RuntimeServiceMissing" && c.Status == health.False
		}
		s.until(2*time.Minute, "it is found", missing)
		if drift := s.drifts(); !slices.Equal(drift, []string{containerd}) {
			t.Errorf("the drift is %v", drift)
		}
		s.sleep(10 * time.Minute)
		if !missing() {
			t.Error("with the policy report it is restarted")
		}
		s.edit(policy("repair"))
		s.until(2*time.Minute, "it serves kubelet", func() bool { return !missing() })
		s.healthy("110")
		if n := kubelet(); n > 0 {
			t.Errorf("kubelet is started %d times", n)
		}
	})
}

// One that repeatedly comes back without it is not restarted for ever.
func TestRuntimeStaysWithoutCRI(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("repair"))
		s.join()
		restarts := s.restarts()
		s.sleep(50 * time.Minute)
		if n := restarts(); n != 3 {
			t.Errorf("it is restarted %d times", n)
		}
		if c := s.condition(health.ContainerdRunning); c.Reason != "RuntimeServiceMissing" {
			t.Errorf("the condition is %+v", c)
		}
	})
}

// A join restarts it once, reports the cause if that does not help, and is finished by the next
// run.
func TestRuntimeOfAJoin(t *testing.T) {
	w := newWorld(t)
	w.config.Agent.ReadyTimeout = "10s" // of the next try, too, also on a busy machine
	w.deaf.Store(3)
	_, err := w.bootstrap()
	unhealthy, ok := errors.AsType[*health.UnhealthyError](err)
	if !ok || unhealthy.Condition.Reason != "RuntimeServiceMissing" {
		t.Fatalf("the error is %v", err)
	}
	joined := func() bool {
		t.Helper()
		is, err := inspect.HasJoined(t.Context(), &w.agent().Env)
		if err != nil {
			t.Error(err)
		}
		return is
	}
	if c, err := inspect.Applied(t.Context(), &w.agent().Env); c == nil || joined() {
		t.Errorf("it has not begun to join, or has joined: %v, %v", c, err)
	}
	if _, err := w.bootstrap(); err != nil || w.deaf.Load() != 0 || !joined() {
		t.Errorf("it is not restarted: %v", err)
	}
}

// A repair of it by hand, and bootstrap, restart it, but not a repair of something else.
func TestRuntimeByHand(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.deaf.Store(1)
	if report, err := w.drift(false); err != nil || len(report.Changes) != 1 ||
		string(report.Changes[0].Key) != containerd ||
		!strings.Contains(report.Changes[0].Action, "restart") {
		t.Errorf("the drift is %+v, %v", report, err)
	}
	if w.deaf.Load() != 1 {
		t.Error("to look at it restarts it")
	}
	w.write("/etc/sysctl.d/999-aks-flex-node.conf", "# changed\n")
	if err := w.repair("path:/etc/sysctl.d/999-aks-flex-node.conf"); err != nil {
		t.Fatal(err)
	}
	if w.deaf.Load() != 1 {
		t.Error("the repair of something else restarts it")
	}
	if _, err := w.drift(true); err != nil || w.deaf.Load() != 0 {
		t.Errorf("the repair does not restart it: %v", err)
	}
	w.deaf.Store(1)
	if _, err := w.bootstrap(); err != nil || w.deaf.Load() != 0 {
		t.Errorf("bootstrap does not restart it: %v", err)
	}
	if report, err := w.drift(false); err != nil || len(report.Changes) != 0 {
		t.Errorf("drift remains: %+v, %v", report, err)
	}
}

// A hanging containerd is found when it has not answered twice in a row, and restarted if drift is
// repaired, but not for ever.
func TestRuntimeHangs(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("repair"))
		s.join()
		hung := func() bool {
			c := s.condition(health.ContainerdRunning)
			return c.Reason == "Hung" && c.Status == health.False
		}
		s.hung.Store(1)
		s.sleep(5 * time.Minute)
		if hung() || s.hung.Load() != 0 || len(s.drifts()) > 0 {
			t.Error("it is called hung after one question without an answer")
		}
		restarts := s.restarts()
		s.hung.Store(1 << 20)
		s.until(3*time.Minute, "it is found", hung)
		if drift := s.drifts(); !slices.Equal(drift, []string{containerd}) {
			t.Errorf("the drift is %v", drift)
		}
		s.sleep(50 * time.Minute)
		if n := restarts(); n != 3 {
			t.Errorf("it is restarted %d times", n)
		}
		s.hung.Store(0)
		s.until(2*time.Minute, "it answers", func() bool { return !hung() })
	})
}

// A containerd that exits after each start is found with its log. A restart would not help.
func TestRuntimeExits(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.edit(policy("repair"))
		s.join()
		s.exits.Store(true)
		restarts := s.restarts()
		found := func() bool { return s.condition(health.ContainerdRunning).Reason == "NotAnswering" }
		s.until(3*time.Minute, "it is found", found)
		s.sleep(10 * time.Minute)
		if drift := s.drifts(); len(drift) > 0 || !found() || restarts() > 0 {
			t.Errorf("the drift is %v; it is restarted %d times", drift, restarts())
		}
		s.deaf.Store(0)
		s.exits.Store(false)
		s.until(2*time.Minute, "it answers", func() bool { return !found() })
	})
}

// A user who may not ask containerd hears of no fault.
func TestRuntimeOfAUser(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	e, a := health.Evidence{}, w.agent()
	a.Runtime = func(context.Context) error { return unix.EACCES }
	inspect.ServiceEvidence(t.Context(), inspect.NewNode(&a.Env, nil), &e)
	if e.Unanswered > 0 {
		t.Errorf("%d requests count as not answered", e.Unanswered)
	}
}

// A containerd that is starting is asked again after a pause, also by a command.
func TestRuntimeStarts(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	e, a := health.Evidence{}, w.agent()
	a.Poll = 50 * time.Millisecond
	begins := time.Now().Add(a.Poll / 2)
	a.Runtime = func(context.Context) error {
		if time.Now().Before(begins) {
			return unix.ECONNREFUSED
		}
		return nil
	}
	inspect.ServiceEvidence(t.Context(), inspect.NewNode(&a.Env, nil), &e)
	if e.Runtime.Err != nil || e.Unanswered > 1 {
		t.Errorf("after %d requests: %v", e.Unanswered, e.Runtime.Err)
	}
}

// A repair by hand asks a runtime that does not answer a second time before it restarts it.
func TestHungRuntimeByHand(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.hung.Store(1)
	if report, err := w.drift(true); err != nil || len(report.Changes) > 0 {
		t.Errorf("one question without an answer: %+v, %v", report, err)
	}
	starts, start := 0, w.systemd.OnStart
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "containerd.service" {
			starts++
			w.hung.Store(0)
		}
		return start(unit, text)
	}
	w.hung.Store(1 << 20)
	if report, err := w.drift(true); err != nil || len(report.Changes) != 1 || starts != 1 {
		t.Errorf("%+v, %v; started %d times", report, err, starts)
	}
}
