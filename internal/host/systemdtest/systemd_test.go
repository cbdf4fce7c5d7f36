package systemdtest

import (
	"os"
	"path/filepath"
	"testing"
)

// A start gives a unit a new process; a crash too, and counts.
func TestProcess(t *testing.T) {
	s := New(t.TempDir())
	if err := os.MkdirAll(filepath.Join(s.Root, unitDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file("x.service"), []byte("[Service]"), 0o644); err != nil {
		t.Fatal(err)
	}
	last, now := 0, func() (pid, restarts int) {
		t.Helper()
		is, err := s.Unit(t.Context(), "x.service")
		if err != nil {
			t.Fatal(err)
		}
		if (is.MainPID > 0) != (is.Active == "active") || is.MainPID > 0 && is.Since.IsZero() {
			t.Errorf("the unit is %+v", is)
		}
		return is.MainPID, is.Restarts
	}
	s.Crash("x.service")
	for i, step := range []struct {
		do       func() error
		runs     bool
		restarts int
	}{
		{func() error { return s.Start(t.Context(), "x.service") }, true, 0},
		{func() error { s.Crash("x.service"); return nil }, true, 1},
		{func() error { s.Crash("x.service"); return nil }, true, 2},
		{func() error { return s.Restart(t.Context(), "x.service") }, true, 0},
		{func() error { return s.Stop(t.Context(), "x.service") }, false, 0},
		{func() error { return s.Start(t.Context(), "x.service") }, true, 0},
		{func() error { return s.Reboot(t.Context()) }, false, 0},
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
