package host

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Upkeep is what wears out or changes under a machine that runs, and costs next to nothing to find
// out. What could not be found out is the zero value.
type Upkeep struct {
	// InodesUsed is the part of the inodes in use, in percent, by directory; ReadOnly are the
	// directories whose file system cannot be written.
	InodesUsed map[string]int
	ReadOnly   []string
	// RebootRequired tells that an update of the system waits for a reboot.
	RebootRequired bool
	// Clock is nil when it is not known.
	Clock *Clock
}

// Clock is how the machine's clock is kept.
type Clock struct {
	Synchronized bool          // as the kernel has been told (adjtimex(2), STA_UNSYNC)
	Container    bool          // the clock is that of another machine, whose affair it is
	Uptime       time.Duration // of the machine
	Keepers      []string      // the time services that run, if the clock is not synchronised
}

// timeServices are the units that keep the clocks of the supported systems.
var timeServices = []string{"systemd-timesyncd.service", "chrony.service", "chronyd.service",
	"ntpsec.service", "ntp.service", "openntpd.service", "ptp4l.service"}

// Upkeep finds out how the machine keeps, and how the file systems of directories do. It changes
// nothing.
func (h *Host) Upkeep(ctx context.Context, dirs []string) Upkeep {
	u := Upkeep{InodesUsed: make(map[string]int), Clock: h.clock(ctx)}
	for _, dir := range dirs {
		var st unix.Statfs_t
		if unix.Statfs(h.path(dir), &st) != nil {
			continue
		}
		if st.Files > 0 { // btrfs and others have no inodes to run out of
			u.InodesUsed[dir] = int(100 * (st.Files - min(st.Ffree, st.Files)) / st.Files)
		}
		if st.Flags&unix.ST_RDONLY != 0 {
			u.ReadOnly = append(u.ReadOnly, dir)
		}
	}
	u.RebootRequired = h.exists("/run/reboot-required")
	return u
}

// clock finds out whether somebody keeps the clock, and who tries to if it is not synchronised.
func (h *Host) clock(ctx context.Context) *Clock {
	if h.exists("/run/systemd/container") {
		return &Clock{Container: true} // which may not even be allowed to ask
	}
	synchronized, err := h.Kernel.ClockSynchronized()
	var up unix.Sysinfo_t
	if err != nil || unix.Sysinfo(&up) != nil {
		return nil
	}
	c := &Clock{Synchronized: synchronized, Uptime: time.Duration(up.Uptime) * time.Second}
	if c.Synchronized {
		return c
	}
	installed, err := h.Systemd.Fragments(ctx, timeServices)
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(installed)) {
		is, err := h.UnitStatus(ctx, name)
		if err != nil {
			return nil
		}
		if is.Running() {
			c.Keepers = append(c.Keepers, name)
		}
	}
	return c
}

// ClockSynchronized reads the kernel's state of the clock.
func (linux) ClockSynchronized() (bool, error) {
	var t unix.Timex
	_, err := unix.Adjtimex(&t)
	return t.Status&unix.STA_UNSYNC == 0, err
}
