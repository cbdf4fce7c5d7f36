package systemdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// found is the result of reading a unit (LoadState), and where it comes from.
type found int

const (
	missing found = iota
	loaded
	masked
	generated
	slice // which needs no file
)

// unit is one unit in memory.
type unit struct {
	is found
	// text is the unit file with its drop-ins, as it was read last.
	text string
	// enablement is the UnitFileState: "" until the first request, and from then on what it was.
	enablement string
	active     bool
	// job tells that the unit is being started.
	job           bool
	pid, restarts int
	// looping tells that its process has ended, and that systemd is about to start it again.
	looping bool
	// entered is when it became active, by CLOCK_MONOTONIC (ActiveEnterTimestampMonotonic).
	entered time.Duration
	// running is the text that the unit was started with.
	running string
}

func (u *unit) startable(name string) error {
	switch u.is {
	case missing:
		return fmt.Errorf("unit %s not found", name)
	case masked:
		return fmt.Errorf("unit %s is masked", name)
	}
	return nil
}

func (s *Systemd) file(name string) string  { return filepath.Join(s.Root, unitDir, name) }
func (s *Systemd) wants(name string) string { return filepath.Join(s.Root, wantsDir, name) }

// load returns a unit in memory; one that is not there is read from disk. One whose file was not
// found is looked for again.
func (s *Systemd) load(name string) *unit {
	u, ok := s.units[name]
	if !ok {
		u = &unit{}
		s.units[name] = u
	}
	if u.is == missing {
		s.refresh(name, u)
	}
	return u
}

// refresh reads a unit from disk. Whether it runs, and with what, stays.
func (s *Systemd) refresh(name string, u *unit) {
	disk := s.read(name)
	u.is, u.text, u.enablement = disk.is, disk.text, ""
}

// read returns what is on disk of a unit. Drop-ins follow the file in the order of their names.
func (s *Systemd) read(name string) *unit {
	if target, err := os.Readlink(s.file(name)); err == nil && target == "/dev/null" {
		return &unit{is: masked}
	}
	u := &unit{}
	if data, err := os.ReadFile(s.file(name)); err == nil {
		u.is, u.text = loaded, string(data)
	} else if s.generated[name] {
		u.is = generated
	} else if filepath.Ext(name) == ".slice" {
		u.is = slice
	}
	dropIns, err := filepath.Glob(s.file(name) + ".d/*.conf")
	if err != nil || u.is == missing {
		return u
	}
	for _, path := range dropIns {
		if data, err := os.ReadFile(path); err == nil {
			u.text += string(data)
		}
	}
	return u
}

// enablement is the UnitFileState on disk.
func (s *Systemd) enablement(name string) string {
	if s.read(name).is == missing {
		return "bad"
	}
	if _, err := os.Lstat(s.wants(name)); err == nil {
		return "enabled"
	}
	return "disabled"
}

// reload reads again what is in memory, and what multi-user.target wants.
func (s *Systemd) reload() {
	clear(s.wanted)
	links, err := os.ReadDir(filepath.Join(s.Root, wantsDir))
	if err != nil {
		links = nil // there is no such directory before the first unit is enabled
	}
	for _, link := range links {
		s.wanted[link.Name()] = true
		s.load(link.Name())
	}
	for name, u := range s.units {
		s.refresh(name, u)
	}
	s.outdated = false
	s.collect()
}

// collect drops the units that are not needed: inactive ones that no target refers to. That of a
// generated unit does.
func (s *Systemd) collect() {
	for name, u := range s.units {
		if !u.active && !u.job && !u.looping && !s.wanted[name] && !s.generated[name] {
			delete(s.units, name)
		}
	}
}
