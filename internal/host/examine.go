package host

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Examination holds the facts gathered only when something is wrong. Unknown ones are zero.
type Examination struct {
	// MissingModules are those of the kernel modules asked for that it neither has nor can load.
	MissingModules []string
	// CgroupVersion is 1 or 2; MissingControllers are those that kubelet needs and does not have.
	CgroupVersion      int
	MissingControllers []string
	// MissingCPU are features of the processor without which Kubernetes' images do not run.
	MissingCPU []string
	// Kernel is the kernel's release.
	Kernel string
	// KubeletIDs are the ranges that the user kubelet has in /etc/subuid and in /etc/subgid, where
	// that user and getsubids are there: then kubelet takes no other ids for user namespaces.
	KubeletIDs []string
	Listening  []int // the TCP ports of this machine that a process listens on
	// Routed reports whether there is a default route, and Resolvers are the name servers that the
	// node asks; nil when that is not known.
	Routed    *bool
	Resolvers []string
	// Sync is the median time until a small file is on the disk; 0 when that is not known.
	Sync time.Duration
	// Unfinished are packages that dpkg has not finished with; Held those of ours that are on hold;
	// Upgradable those of container runtimes and kubelet, of the distribution or of others, that
	// are not.
	Unfinished, Held, Upgradable []string
}

// Examine finds out what takes a while. It writes only below dir, into a file without a name.
func (h *Host) Examine(modules []string, dir, resolvConf string) Examination {
	x := Examination{
		MissingModules: h.missingModules(modules), MissingCPU: h.missingCPU(),
		Listening: h.listening(), Routed: h.routed(), Resolvers: h.resolvers(resolvConf),
		Sync: h.syncTime(dir), Kernel: h.text("/proc/sys/kernel/osrelease"),
		KubeletIDs: h.kubeletIDs(),
	}
	x.CgroupVersion, x.MissingControllers = h.cgroups()
	h.packages(&x)
	return x
}

// missingModules are neither loaded, nor in the kernel, nor listed below /lib/modules.
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

// cgroups tells the version of the control groups, and which controllers kubelet will miss.
func (h *Host) cgroups() (version int, missing []string) {
	has, err := h.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		if h.exists("/sys/fs/cgroup/memory") {
			return 1, nil
		}
		return 0, nil
	}
	return 2, without(strings.Fields(string(has)), "cpu", "cpuset", "memory", "pids")
}

// swapLimits reports whether control groups have memory.swap.max (Linux, admin-guide/cgroup-v2),
// which is in each but the root: systemd has made system.slice.
func (h *Host) swapLimits() bool { return h.exists("/sys/fs/cgroup/system.slice/memory.swap.max") }

// missingCPU are the features of x86-64-v2 that a processor lacks. On arm64 every processor that
// runs the supported systems will do.
func (h *Host) missingCPU() []string {
	rows, _ := h.rows("/proc/cpuinfo") // what cannot be read is not known
	for _, row := range rows {
		if len(row) > 1 && row[0] == "flags" {
			return without(row, "cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")
		}
	}
	return nil
}

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

// without are those of the wanted that a list does not have.
func without(list []string, wanted ...string) []string {
	return slices.DeleteFunc(wanted, func(s string) bool { return slices.Contains(list, s) })
}

// listening returns the TCP ports that a process listens on (proc_net_tcp, state 0A).
func (h *Host) listening() []int {
	var ports []int
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := h.rows(file) // a kernel without IPv6 has no second one
		for _, row := range table {
			if len(row) < 4 || row[3] != "0A" {
				continue
			}
			_, text, _ := strings.Cut(row[1], ":")
			if port, err := strconv.ParseInt(text, 16, 32); err == nil {
				ports = append(ports, int(port))
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// resolvers are the name servers of a resolv.conf(5), nil when it cannot be read.
func (h *Host) resolvers(file string) []string {
	rows, err := h.rows(file)
	if file == "" || err != nil {
		return nil
	}
	servers := []string{}
	for _, row := range rows {
		if len(row) > 1 && row[0] == "nameserver" {
			servers = append(servers, row[1])
		}
	}
	return servers
}

// syncLimit limits the wait for a disk: one that has failed may never answer.
const syncLimit = 10 * time.Second

// syncTime returns the median time until 4 KiB are on the disk below a directory, or below the
// nearest existing one above it, or syncLimit if it takes longer; 0 when that is not known.
func (h *Host) syncTime(dir string) time.Duration {
	return upTo(syncLimit, func() time.Duration {
		at := h.path(dir)
		for {
			if info, err := os.Stat(at); at == "/" || err == nil && info.IsDir() {
				return syncTime(at)
			}
			at = filepath.Dir(at)
		}
	})
}

// upTo returns the result of measure, or limit when that takes longer. The kernel ends no write
// that hangs, so that measure may go on, and even keep the process from ending after its output.
func upTo(limit time.Duration, measure func() time.Duration) time.Duration {
	took := make(chan time.Duration, 1)
	go func() { took <- measure() }()
	select {
	case is := <-took:
		return is
	case <-time.After(limit):
		return limit
	}
}

func syncTime(dir string) time.Duration {
	const times, enough = 7, syncLimit / 2
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var took []time.Duration
	block := make([]byte, 4096)
	for began := time.Now(); len(took) < times && time.Since(began) < enough; {
		start := time.Now()
		if _, err := f.Write(block); err != nil || f.Sync() != nil {
			return 0
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// Upkeep holds the parts of a running machine that wear out or change, and cost next to nothing to
// read. Unknown ones have the zero value.
type Upkeep struct {
	// InodesUsed is the part of the inodes in use, in percent, by directory; ReadOnly are the
	// directories whose file system cannot be written.
	InodesUsed     map[string]int
	ReadOnly       []string
	RebootRequired bool   // an update of the system waits for a reboot
	Clock          *Clock // nil when it is not known
}

// Clock describes the synchronisation of the machine's clock.
type Clock struct {
	Synchronized bool          // as the kernel has been told (adjtimex(2), STA_UNSYNC)
	Container    bool          // the clock is that of another machine, whose affair it is
	Uptime       time.Duration // of the machine
	Keepers      []string      // the time services that run, if the clock is not synchronised
}

// Upkeep tells how the machine keeps, and how the file systems of directories do.
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
	u.RebootRequired = h.exists(h.distro().Reboot)
	return u
}

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
