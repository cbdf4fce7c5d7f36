package host

import (
	"context"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Examination holds the facts gathered only when something is wrong. Unknown ones are zero.
type Examination struct {
	MissingModules     []string // the requested kernel modules that are neither loaded nor loadable
	CgroupVersion      int      // 1 or 2
	MissingControllers []string // the controllers that kubelet needs and lacks
	Kernel             string   // its release
	// KubeletIDs are the ranges of the user kubelet in /etc/subuid and in /etc/subgid, if that user
	// and getsubids exist: then kubelet takes no other ids for user namespaces.
	KubeletIDs []string
	Routed     *bool    // whether there is a default route; nil if unknown
	Unfinished []string // the packages that dpkg has not finished with
	Held       []string // our packages that are on hold
	Upgradable []string // packages of container runtimes and kubelet that are not on hold
}

// Examine runs the slow examinations. It changes nothing.
func (h *Host) Examine(modules []string) Examination {
	x := Examination{
		MissingModules: h.missingModules(modules), Routed: h.routed(),
		Kernel: h.text("/proc/sys/kernel/osrelease"), KubeletIDs: h.kubeletIDs(),
	}
	x.CgroupVersion, x.MissingControllers = h.cgroups()
	h.packages(&x)
	return x
}

// missingModules returns the modules that are neither loaded, nor built in, nor in /lib/modules.
func (h *Host) missingModules(wanted []string) []string {
	dir := path.Join("/lib/modules", h.text("/proc/sys/kernel/osrelease"))
	loadable, err := h.ReadFile(path.Join(dir, "modules.dep"))
	if err != nil {
		return nil
	}
	builtin, _ := h.ReadFile(path.Join(dir, "modules.builtin")) // a kernel may have none
	known := make(map[string]bool)
	for line := range strings.Lines(string(loadable) + "\n" + string(builtin)) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, _ := strings.Cut(path.Base(file), ".ko")
		known[strings.ReplaceAll(name, "-", "_")] = true
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(name string) bool {
		return known[name] || h.exists(path.Join("/sys/module", name)) || h.builtin(name)
	})
}

// cgroups returns the version of the control groups, and the controllers that kubelet lacks.
func (h *Host) cgroups() (version int, missing []string) {
	switch has, err := h.ReadFile("/sys/fs/cgroup/cgroup.controllers"); {
	case err == nil:
		return 2, without(strings.Fields(string(has)), "cpu", "cpuset", "memory", "pids")
	case h.exists("/sys/fs/cgroup/memory"):
		return 1, nil
	}
	return 0, nil
}

// swapLimits reports whether control groups have memory.swap.max (Linux, admin-guide/cgroup-v2).
// Each but the root has it; systemd always makes system.slice.
func (h *Host) swapLimits() bool { return h.exists("/sys/fs/cgroup/system.slice/memory.swap.max") }

func (h *Host) kubeletIDs() []string {
	user := strings.Contains("\n"+h.text("/etc/passwd"), "\nkubelet:")
	if !user || !h.exists("/usr/bin/getsubids") {
		return nil
	}
	ids := make([]string, 2)
	for i, file := range []string{"/etc/subuid", "/etc/subgid"} {
		for line := range strings.Lines(h.text(file)) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "kubelet:"); ok {
				ids[i] += id + " "
			}
		}
	}
	return ids
}

// without returns the wanted strings that are not in list.
func without(list []string, wanted ...string) []string {
	return slices.DeleteFunc(wanted, func(s string) bool { return slices.Contains(list, s) })
}

// resolvers returns the name servers in a resolv.conf(5), except those that pods cannot reach: on
// this machine, or beyond an interface of its own (fe80::1%eth0); nil if it cannot be read.
func (h *Host) resolvers(file string) []string {
	rows, err := h.rows(file)
	if file == "" || err != nil {
		return nil
	}
	servers := []string{}
	for _, row := range rows {
		if len(row) < 2 || row[0] != "nameserver" {
			continue
		}
		if ip, _ := netip.ParseAddr(row[1]); !ip.IsLoopback() && ip.Zone() == "" {
			servers = append(servers, row[1])
		}
	}
	return servers
}

// Upkeep holds the parts of a running machine that wear out or change and that are cheap to read.
// Unknown ones have the zero value.
type Upkeep struct {
	RebootRequired bool   // an update of the system waits for a reboot
	Clock          *Clock // nil if unknown
}

// Clock describes the synchronisation of the machine's clock.
type Clock struct {
	Synchronized bool          // as a service has set it (adjtimex(2), STA_UNSYNC)
	Container    bool          // the clock is the host's, and not kept here
	Uptime       time.Duration // of the machine
	Keepers      []string      // the time services that run, if the clock is not synchronised
}

// Upkeep examines the machine.
func (h *Host) Upkeep(ctx context.Context) Upkeep {
	return Upkeep{RebootRequired: h.exists(h.distro().Reboot), Clock: h.clock(ctx)}
}

func (h *Host) clock(ctx context.Context) *Clock {
	if h.exists("/run/systemd/container") {
		return &Clock{Container: true} // a container may not even be allowed to ask
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
	installed, err := h.Systemd.Fragments(ctx, h.distro().TimeKeepers)
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

func (linux) ClockSynchronized() (bool, error) {
	var t unix.Timex
	_, err := unix.Adjtimex(&t)
	return t.Status&unix.STA_UNSYNC == 0, err
}
