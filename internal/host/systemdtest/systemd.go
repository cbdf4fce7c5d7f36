// Package systemdtest is a small real systemd for tests: it reads unit files below a root, keeps
// the links of enabled and masked units, and tracks which units run. As systemd does, it uses what
// it has read until a reload. It starts no process; a hook stands in for services.
package systemdtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
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
	// OnStart is called when a unit starts; an error makes the job fail. May be nil.
	OnStart func(unit, text string) error
	// Stamp returns the wall-clock time that systemd would have stamped at an instant. It differs if
	// the clock was set since. May be nil.
	Stamp func(at time.Time) time.Time

	booted    time.Time // the start of CLOCK_MONOTONIC
	mu        sync.Mutex
	units     map[string]*unit // the loaded ones; an inactive one without references is unloaded
	wanted    map[string]bool  // by multi-user.target, as of the last reload
	outdated  bool             // links were changed since (NeedDaemonReload of every unit)
	generated map[string]bool  // units without a file: systemd generated them from /etc/fstab
	lastPID   int
}

// New returns a systemd that runs nothing yet.
func New(root string) *Systemd {
	return &Systemd{
		Root: root, booted: time.Now().Add(-time.Minute), lastPID: 100,
		units: map[string]*unit{}, wanted: map[string]bool{}, generated: map[string]bool{},
	}
}

// lock locks the units. The returned function unloads inactive units that no target refers to, and
// unlocks. A generated unit has such a target.
func (s *Systemd) lock() (unlock func()) {
	s.mu.Lock()
	return func() {
		maps.DeleteFunc(s.units, func(name string, u *unit) bool {
			return !u.active && !u.job && !u.looping && !s.wanted[name] && !s.generated[name]
		})
		s.mu.Unlock()
	}
}

func (s *Systemd) unlocked(do func() error) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return do()
}

// Unit loads the unit and returns its state.
func (s *Systemd) Unit(_ context.Context, name string, _ bool) (host.UnitStatus, error) {
	defer s.lock()()
	u := s.load(name)
	up := time.Since(s.booted)
	return host.UnitStatusOf(s.properties(name, u), s.booted.Add(up), up), nil
}

// properties returns the properties on the bus that the host package reads, and the wall time that
// it must not read.
func (s *Systemd) properties(name string, u *unit) map[string]any {
	is := map[string]any{
		"ActiveState": "inactive", "MainPID": uint32(u.pid), "NRestarts": uint32(u.restarts),
	}
	switch {
	case u.active:
		is["ActiveState"] = "active"
	case u.looping:
		is["ActiveState"] = "activating"
	}
	switch u.is {
	case masked:
		is["LoadState"] = "masked"
	case generated:
		is["UnitFileState"] = "generated"
		is["FragmentPath"] = path.Join("/run/systemd/generator", name)
	case loaded:
		is["FragmentPath"] = path.Join(unitDir, name)
		u.enablement = cmp.Or(u.enablement, s.enablement(name))
		is["UnitFileState"] = u.enablement
	}
	if u.entered > 0 {
		stamp := s.booted.Add(u.entered)
		if s.Stamp != nil {
			stamp = s.Stamp(stamp)
		}
		is["ActiveEnterTimestampMonotonic"] = uint64(u.entered.Microseconds())
		is["InactiveExitTimestampMonotonic"] = is["ActiveEnterTimestampMonotonic"]
		is["ActiveEnterTimestamp"] = uint64(stamp.UnixMicro())
	}
	return is
}

func (s *Systemd) Fragments(ctx context.Context, units []string) (map[string]string, error) {
	files := make(map[string]string)
	for _, unit := range units {
		if is, err := s.Unit(ctx, unit, false); err == nil && is.Path != "" {
			files[unit] = is.Path
		}
	}
	return files, nil
}

// Do calls the method of the verb.
func (s *Systemd) Do(ctx context.Context, verb host.Verb, name string) error {
	return map[host.Verb]func(context.Context, string) error{
		host.Start: s.Start, host.Stop: s.Stop, host.Restart: s.Restart, host.Enable: s.Enable,
		host.Disable: s.Disable, host.Mask: s.Mask, host.Unmask: s.Unmask, host.Reset: s.ResetFailed,
	}[verb](ctx, name)
}

// Start starts the unit as loaded, not as it is on disk.
func (s *Systemd) Start(_ context.Context, name string) error {
	defer s.lock()()
	u := s.load(name)
	if err := u.startable(name); err != nil || u.active {
		return err
	}
	text := u.text
	if s.OnStart != nil {
		u.job = true
		err := s.unlocked(func() error { return s.OnStart(name, text) })
		u.job = false
		if err != nil {
			return err
		}
	}
	u.active, u.looping, u.running = true, false, text
	s.run(u)
	return nil
}

func (s *Systemd) Stop(_ context.Context, name string) error {
	defer s.lock()()
	u := s.load(name)
	if u.is == missing && !u.active {
		return fmt.Errorf("unit %s not loaded", name)
	}
	if !u.looping {
		u.restarts = 0
	}
	u.active, u.pid, u.running = false, 0, ""
	return nil
}

func (s *Systemd) Restart(ctx context.Context, name string) error {
	unlock := s.lock()
	err := s.load(name).startable(name)
	unlock()
	if err == nil {
		err = s.Stop(ctx, name)
	}
	if err != nil {
		return err
	}
	return s.Start(ctx, name)
}

// run gives a unit a new process with a process id greater than all earlier ones.
func (s *Systemd) run(u *unit) {
	s.lastPID++
	u.pid, u.entered = s.lastPID, time.Since(s.booted)
}

// Crash ends the process of a running unit, which systemd then restarts.
func (s *Systemd) Crash(name string) {
	defer s.lock()()
	if u, ok := s.units[name]; ok && u.active {
		u.restarts++
		s.run(u)
	}
}

// Loop ends the process of a running unit, which systemd is about to restart. A start meanwhile
// does not reset its count of restarts.
func (s *Systemd) Loop(name string) {
	defer s.lock()()
	if u, ok := s.units[name]; ok && u.active {
		u.restarts++
		u.active, u.looping, u.pid = false, true, 0
	}
}

func (s *Systemd) Enable(_ context.Context, name string) error {
	defer s.lock()()
	if err := s.read(name).startable(name); err != nil {
		return err
	}
	return s.link(path.Join(unitDir, name), s.wants(name))
}

// link creates a link, unless it exists, and reads all units again.
func (s *Systemd) link(target, path string) error {
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	s.reload()
	return nil
}

// Disable leaves a loaded unit marked as enabled until a reload.
func (s *Systemd) Disable(_ context.Context, name string) error {
	defer s.lock()()
	err := os.Remove(s.wants(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.outdated = s.outdated || err == nil
	if s.read(name).is == missing {
		return fmt.Errorf("unit file %s does not exist", name)
	}
	return nil
}

func (s *Systemd) Mask(_ context.Context, name string) error {
	defer s.lock()()
	return s.link("/dev/null", s.file(name))
}

func (s *Systemd) Unmask(_ context.Context, name string) error {
	defer s.lock()()
	if s.read(name).is == masked {
		if err := os.Remove(s.file(name)); err != nil {
			return err
		}
	}
	s.reload()
	return nil
}

func (s *Systemd) Reload(context.Context) error {
	defer s.lock()()
	s.reload()
	return nil
}

func (s *Systemd) ResetFailed(_ context.Context, name string) error {
	defer s.lock()()
	u := s.load(name)
	u.restarts, u.looping = 0, false
	return nil
}

// Units returns the loaded units that match, also those that run without a file.
func (s *Systemd) Units(_ context.Context, pattern string) ([]string, error) {
	return s.list(func(name string, u *unit) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil && (u.is != missing || u.active)
	}), nil
}

// Active returns the running units.
func (s *Systemd) Active() []string {
	return s.list(func(_ string, u *unit) bool { return u.active })
}

// NeedReload returns the loaded units that differ from those on disk, or were enabled or disabled
// (NeedDaemonReload).
func (s *Systemd) NeedReload() []string {
	return s.list(func(name string, u *unit) bool {
		disk := s.read(name)
		return s.outdated || u.is != disk.is || u.text != disk.text
	})
}

// list returns the names of the loaded units for which pick is true.
func (s *Systemd) list(pick func(name string, u *unit) bool) []string {
	defer s.lock()()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.units)), func(name string) bool {
		return !pick(name, s.units[name])
	})
}

// Running returns the text that a running unit was started with; "" if it does not run.
func (s *Systemd) Running(name string) string {
	defer s.lock()()
	return s.load(name).running
}

// OnDisk returns the text that a unit would be started with after a reload.
func (s *Systemd) OnDisk(name string) string {
	defer s.lock()()
	return s.read(name).text
}

// Generate makes a running unit without a file, as systemd does for a line of /etc/fstab.
func (s *Systemd) Generate(name string) {
	defer s.lock()()
	s.generated[name] = true
	s.load(name).active = true
}

// Appear makes a running unit without a file, as systemd does for each link of udev to an area of
// swap; Vanish unloads it, as when that swap is turned off, or a boot that did not start it.
func (s *Systemd) Appear(name string) {
	defer s.lock()()
	s.load(name).active = true
}

func (s *Systemd) Vanish(name string) {
	defer s.lock()()
	delete(s.units, name)
}

// Close implements host.Systemd.
func (s *Systemd) Close() {}
