package systemdtest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/host"
)

const name = "x.service"

func newSystemd(t *testing.T) *Systemd {
	t.Helper()
	s := New(t.TempDir())
	for _, dir := range []string{wantsDir, unitDir + "/" + name + ".d"} {
		if err := os.MkdirAll(filepath.Join(s.Root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s.file(name), "one")
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// do makes calls of systemd that must succeed.
func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// is fails unless the unit has that state, and systemd needs a reload or not.
func (s *Systemd) is(t *testing.T, file, active string, needReload bool) {
	t.Helper()
	is, err := s.Unit(t.Context(), name, true)
	do(t, err)
	if is.File != file || is.Active != active || (is.Path != "") != (file != "") {
		t.Errorf("the unit is %+v; want %q and %s", is, file, active)
	}
	if names := s.NeedReload(); slices.Contains(names, name) != needReload {
		t.Errorf("%v need a reload; of the unit that should be %v", names, needReload)
	}
}

// A unit in memory stays as it was read until a reload.
func TestReload(t *testing.T) {
	s, ctx := newSystemd(t), t.Context()
	do(t, s.Start(ctx, name), s.Enable(ctx, name))
	s.is(t, "enabled", "active", false)

	write(t, s.file(name), "two ")
	write(t, s.file(name)+".d/proxy.conf", "and more")
	do(t, s.Restart(ctx, name))
	s.is(t, "enabled", "active", true)
	if text := s.Running(name); text != "one" {
		t.Errorf("before the reload, it runs with %q", text)
	}
	do(t, s.Reload(ctx), s.Restart(ctx, name))
	s.is(t, "enabled", "active", false)
	if text := s.Running(name); text != "two and more" || text != s.OnDisk(name) {
		t.Errorf("after the reload, it runs with %q", text)
	}

	do(t, s.Disable(ctx, name))
	s.is(t, "enabled", "active", true)
	do(t, s.Reload(ctx))
	s.is(t, "disabled", "active", false)
}

// A unit whose file was removed is there until a reload, and as long as it runs.
func TestRemovedFile(t *testing.T) {
	s, ctx := newSystemd(t), t.Context()
	do(t, s.Start(ctx, name), s.Enable(ctx, name))
	s.is(t, "enabled", "active", false)
	do(t, s.Disable(ctx, name), s.Stop(ctx, name), os.Remove(s.file(name)))
	s.is(t, "enabled", "inactive", true)
	if err := s.Disable(ctx, name); err == nil {
		t.Error("a unit without a file was disabled")
	}
	do(t, s.Start(ctx, name), s.Reload(ctx))
	s.is(t, "", "active", false)
	if err := s.Restart(ctx, name); err == nil || s.Running(name) != "one" {
		t.Errorf("without a file: %v; it runs with %q", err, s.Running(name))
	}
	do(t, s.Stop(ctx, name))
	s.is(t, "", "inactive", false)
	for verb, f := range map[string]func() error{
		"start":  func() error { return s.Start(ctx, name) },
		"stop":   func() error { return s.Stop(ctx, name) },
		"enable": func() error { return s.Enable(ctx, name) },
	} {
		if err := f(); err == nil {
			t.Errorf("there is no unit to %s", verb)
		}
	}
}

// What is not in memory is as it is on disk: no reload is needed.
func TestNotInMemory(t *testing.T) {
	s, ctx := newSystemd(t), t.Context()
	s.is(t, "disabled", "inactive", false)
	write(t, s.file(name), "two")
	do(t, s.Start(ctx, name))
	if text := s.Running(name); text != "two" {
		t.Errorf("it runs with %q", text)
	}
	do(t, s.Stop(ctx, name), os.Remove(s.file(name)))
	s.is(t, "", "inactive", false)
}

// Masking and unmasking reload.
func TestMask(t *testing.T) {
	const swap = "swap.swap"
	s, ctx := newSystemd(t), t.Context()
	s.Generate(swap)
	file := func() host.UnitStatus { is, err := s.Unit(ctx, swap, true); do(t, err); return is }
	if is := file(); is.File != "generated" || is.Active != "active" {
		t.Errorf("the swap unit is %+v", is)
	}
	do(t, s.Stop(ctx, swap), s.Mask(ctx, swap))
	if is := file(); is.File != "masked" || s.Start(ctx, swap) == nil {
		t.Errorf("the masked unit is %+v", is)
	}
	do(t, s.Unmask(ctx, swap), s.Unmask(ctx, swap), s.Start(ctx, swap))
	units, err := s.Units(ctx, "*.swap")
	if is := file(); is.File != "generated" || !slices.Equal(units, []string{swap}) || err != nil {
		t.Errorf("the swap unit is %+v, and there are %v, %v", is, units, err)
	}
}

// A start gives a unit a new process; a crash too, and counts.
func TestProcess(t *testing.T) {
	s := newSystemd(t)
	last, now := 0, func() (pid, restarts int) {
		t.Helper()
		is, err := s.Unit(t.Context(), name, true)
		if err != nil {
			t.Fatal(err)
		}
		if (is.MainPID > 0) != (is.Active == "active") || is.MainPID > 0 && is.Since.IsZero() {
			t.Errorf("the unit is %+v", is)
		}
		return is.MainPID, is.Restarts
	}
	s.Crash(name)
	for i, step := range []struct {
		do       func() error
		runs     bool
		restarts int
	}{
		{func() error { return s.Start(t.Context(), name) }, true, 0},
		{func() error { s.Crash(name); return nil }, true, 1},
		{func() error { s.Crash(name); return nil }, true, 2},
		{func() error { return s.Restart(t.Context(), name) }, true, 0},
		{func() error { return s.Stop(t.Context(), name) }, false, 0},
		{func() error { return s.Start(t.Context(), name) }, true, 0},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		pid, restarts := now()
		if step.runs && pid <= last || !step.runs && pid != 0 || restarts != step.restarts {
			t.Errorf("step %d: process %d after %d, %d restarts", i, pid, last, restarts)
		}
		last = max(last, pid)
	}
}

// A unit that systemd is about to start again keeps its count when another process restarts it,
// until it is reset.
func TestLoop(t *testing.T) {
	s := newSystemd(t)
	restarts := func(want int) {
		t.Helper()
		if is, err := s.Unit(t.Context(), name, true); err != nil || is.Restarts != want {
			t.Errorf("%d restarts, want %d: %v", is.Restarts, want, err)
		}
	}
	if err := s.Start(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	s.Crash(name)
	s.Loop(name)
	restarts(2)
	if err := s.Restart(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	restarts(2)
	if err := s.ResetFailed(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	restarts(0)
}
