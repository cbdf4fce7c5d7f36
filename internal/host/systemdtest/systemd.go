// Package systemdtest is a small real systemd for tests: it reads unit files below a root, keeps
// the links that enabling and masking make there, and tells which units run. It starts no process;
// hooks stand for what services do.
package systemdtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/host"
)

const (
	unitDir  = "/etc/systemd/system"
	wantsDir = unitDir + "/multi-user.target.wants"
)

// Systemd implements host.Systemd below Root.
type Systemd struct {
	Root string
	// OnStart and OnStop are called when a unit starts or stops; an error of OnStart makes the job
	// fail. May be nil.
	OnStart func(unit, text string) error
	OnStop  func(unit string)

	mu     sync.Mutex
	active map[string]bool
	// pids, restarts and since are what the status of a unit tells of its process.
	pids, restarts map[string]int
	since          map[string]time.Time
	lastPID        int
	// loaded is the text of each unit file as it was read last: a changed file counts only after a
	// reload. running is the text that a unit was started with.
	loaded, running map[string]string
	// generated are the units that have no file: systemd made them from /etc/fstab.
	generated map[string]bool
}

// New returns a systemd that runs nothing yet.
func New(root string) *Systemd {
	return &Systemd{
		Root: root, active: map[string]bool{}, lastPID: 100,
		pids: map[string]int{}, restarts: map[string]int{}, since: map[string]time.Time{},
		loaded: map[string]string{}, running: map[string]string{}, generated: map[string]bool{},
	}
}

func (s *Systemd) file(unit string) string  { return filepath.Join(s.Root, unitDir, unit) }
func (s *Systemd) wants(unit string) string { return filepath.Join(s.Root, wantsDir, unit) }

// Unit implements host.Systemd.
func (s *Systemd) Unit(_ context.Context, unit string) (host.UnitStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := host.UnitStatus{
		Active: "inactive", MainPID: s.pids[unit], Restarts: s.restarts[unit],
		Since: s.since[unit],
	}
	if s.active[unit] {
		status.Active = "active"
	}
	target, err := os.Readlink(s.file(unit))
	switch {
	case err == nil && target == "/dev/null":
		status.File = "masked"
		return status, nil
	case s.generated[unit]:
		status.File = "generated"
		return status, nil
	case s.read(unit) == "":
		return status, nil
	}
	status.Path, status.File = path.Join(unitDir, unit), "disabled"
	if _, err := os.Lstat(s.wants(unit)); err == nil {
		status.File = "enabled"
	}
	return status, nil
}

// Fragments implements host.Systemd.
func (s *Systemd) Fragments(ctx context.Context, units []string) (map[string]string, error) {
	files := make(map[string]string)
	for _, unit := range units {
		is, err := s.Unit(ctx, unit)
		if err != nil {
			return nil, err
		}
		if is.Path != "" {
			files[unit] = is.Path
		}
	}
	return files, nil
}

// read returns the text of a unit's file; "" when there is none.
func (s *Systemd) read(unit string) string {
	data, err := os.ReadFile(s.file(unit))
	if err != nil {
		return ""
	}
	return string(data)
}

// Start implements host.Systemd.
func (s *Systemd) Start(_ context.Context, unit string) error {
	s.mu.Lock()
	text, known := s.loaded[unit]
	if !known {
		text = s.read(unit)
		s.loaded[unit] = text
	}
	s.mu.Unlock()
	if text == "" && !s.generated[unit] {
		return fmt.Errorf("unit %s not found", unit)
	}
	if s.OnStart != nil {
		if err := s.OnStart(unit, text); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.running[unit] = text
	s.mu.Unlock()
	s.set(unit, true)
	return nil
}

// Stop implements host.Systemd.
func (s *Systemd) Stop(_ context.Context, unit string) error {
	if s.OnStop != nil {
		s.OnStop(unit)
	}
	s.set(unit, false)
	return nil
}

// Restart implements host.Systemd.
func (s *Systemd) Restart(ctx context.Context, unit string) error {
	if err := s.Stop(ctx, unit); err != nil {
		return err
	}
	return s.Start(ctx, unit)
}

func (s *Systemd) set(unit string, active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[unit] = active
	s.restarts[unit] = 0
	if active {
		s.run(unit)
	} else {
		s.pids[unit] = 0
	}
}

// run gives a unit a new process. Its process id is greater than any before.
func (s *Systemd) run(unit string) {
	s.lastPID++
	s.pids[unit], s.since[unit] = s.lastPID, time.Now()
}

// Crash ends the process of a running unit, which systemd then starts again by itself.
func (s *Systemd) Crash(unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[unit] {
		s.restarts[unit]++
		s.run(unit)
	}
}

// Reboot stops everything and starts what is enabled.
func (s *Systemd) Reboot(ctx context.Context) error {
	s.mu.Lock()
	s.active, s.loaded = map[string]bool{}, map[string]string{}
	s.pids, s.restarts = map[string]int{}, map[string]int{}
	s.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(s.Root, wantsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := s.Start(ctx, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Enable implements host.Systemd.
func (s *Systemd) Enable(_ context.Context, unit string) error {
	if s.read(unit) == "" {
		return fmt.Errorf("unit %s not found", unit)
	}
	return ignoring(fs.ErrExist, os.Symlink(path.Join(unitDir, unit), s.wants(unit)))
}

// Disable implements host.Systemd.
func (s *Systemd) Disable(_ context.Context, unit string) error {
	return ignoring(fs.ErrNotExist, os.Remove(s.wants(unit)))
}

// Mask implements host.Systemd.
func (s *Systemd) Mask(_ context.Context, unit string) error {
	return ignoring(fs.ErrExist, os.Symlink("/dev/null", s.file(unit)))
}

// Unmask implements host.Systemd.
func (s *Systemd) Unmask(_ context.Context, unit string) error {
	return ignoring(fs.ErrNotExist, os.Remove(s.file(unit)))
}

func ignoring(ignored, err error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

// Reload implements host.Systemd.
func (s *Systemd) Reload(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = map[string]string{}
	return nil
}

// Running returns the text that a running unit was started with.
func (s *Systemd) Running(unit string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[unit]
}

// ResetFailed implements host.Systemd.
func (s *Systemd) ResetFailed(context.Context, string) error { return nil }

// Units implements host.Systemd: the active units that match.
func (s *Systemd) Units(_ context.Context, pattern string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for unit, active := range s.active {
		if ok, err := path.Match(pattern, unit); ok && active && err == nil {
			names = append(names, unit)
		}
	}
	return names, nil
}

// Generate makes a running unit without a file, as systemd does for a line of /etc/fstab.
func (s *Systemd) Generate(unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generated[unit], s.active[unit] = true, true
}

// Close implements host.Systemd.
func (s *Systemd) Close() {}
