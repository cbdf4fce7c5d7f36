package systemdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// found is the result of reading a unit (LoadState).
type found int

const (
	missing found = iota
	loaded
	masked
	generated
	slice // needs no file
)

// unit is a loaded unit.
type unit struct {
	is            found
	text          string // the unit file with its drop-ins, as last read
	running       string // the text that the unit was started with
	enablement    string // the UnitFileState: "" until the first request, then cached
	active        bool
	job           bool // the unit is being started
	looping       bool // its process has ended, and systemd is about to restart it
	pid, restarts int
	entered       time.Duration // when it became active (ActiveEnterTimestampMonotonic)
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

// load returns a loaded unit. It reads a unit from disk if it is not loaded or had no file.
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

// refresh reads a unit from disk and keeps its running state.
func (s *Systemd) refresh(name string, u *unit) {
	disk := s.read(name)
	u.is, u.text, u.enablement = disk.is, disk.text, ""
}

// read returns a unit as it is on disk. Drop-ins follow the file in the order of their names.
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

// enablement returns the UnitFileState on disk.
func (s *Systemd) enablement(name string) string {
	if s.read(name).is == missing {
		return "bad"
	}
	if _, err := os.Lstat(s.wants(name)); err == nil {
		return "enabled"
	}
	return "disabled"
}

// reload reads the loaded units again, and the units that multi-user.target wants.
func (s *Systemd) reload() {
	clear(s.wanted)
	links, _ := os.ReadDir(s.wants("")) // created for the first enabled unit
	for _, link := range links {
		s.wanted[link.Name()] = true
		s.load(link.Name())
	}
	for name, u := range s.units {
		s.refresh(name, u)
	}
	s.outdated = false
}
