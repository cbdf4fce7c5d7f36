package host

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Examination is what is worth knowing of a machine only when something is wrong. What could not be
// found out is the zero value.
type Examination struct {
	// MissingModules are those of the kernel modules asked for that it neither has nor can load.
	MissingModules []string
	// CgroupVersion is 1 or 2; MissingControllers are those that kubelet needs and does not have.
	CgroupVersion      int
	MissingControllers []string
	// MissingCPU are the features of the processor without which the images of Kubernetes do not run.
	MissingCPU []string
	// Listening are the TCP ports of this machine that somebody listens on.
	Listening []int
	// Routed tells whether there is a default route; nil when that is not known.
	Routed *bool
	// Resolvers are the name servers that the node asks; nil when that is not known.
	Resolvers []string
	// Sync is how long a small file takes to be on the disk, the median of some; 0 when that is not
	// known, such as to whoever may not write there.
	Sync time.Duration
	// Unfinished are packages that dpkg has not finished with; Held those of ours on which somebody
	// has put a hold; Upgradable those of container runtimes and kubelet, of the distribution or of
	// others, on which there is none.
	Unfinished, Held, Upgradable []string
}

// Examine finds out about the machine what takes a while, and not all of which others than root can
// tell. Whatever it writes it writes below dir, into a file without a name: it changes nothing.
func (h *Host) Examine(modules []string, dir, resolvConf string) Examination {
	var x Examination
	x.MissingModules = h.missingModules(modules)
	x.CgroupVersion, x.MissingControllers = h.cgroups()
	x.MissingCPU = h.missingCPU()
	x.Listening = h.listening()
	x.Routed = h.routed()
	x.Resolvers = h.resolvers(resolvConf)
	x.Sync = h.syncTime(dir)
	h.packages(&x)
	return x
}

// missingModules are the modules that are neither loaded nor part of the kernel nor below
// /lib/modules. Without a list of those nothing is known to be missing.
func (h *Host) missingModules(wanted []string) []string {
	kernel, err := h.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil
	}
	var missing []string
	dir := path.Join("/lib/modules", strings.TrimSpace(string(kernel)))
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
	for _, name := range wanted {
		_, loaded := h.List(path.Join("/sys/module", name))
		if !known[name] && loaded != nil && !h.builtin(name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// cgroups tells the version of the control groups, and which controllers kubelet will miss.
func (h *Host) cgroups() (version int, missing []string) {
	has, err := h.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		if _, err := h.List("/sys/fs/cgroup/memory"); err == nil {
			return 1, nil
		}
		return 0, nil
	}
	for _, controller := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !slices.Contains(strings.Fields(string(has)), controller) {
			missing = append(missing, controller)
		}
	}
	return 2, missing
}

// missingCPU are the features of x86-64-v2 that a processor lacks. On arm64 every processor that
// runs the supported systems will do.
func (h *Host) missingCPU() []string {
	info, _ := h.ReadFile("/proc/cpuinfo") // what cannot be read is not known
	for line := range strings.Lines(string(info)) {
		name, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		has := strings.Fields(flags)
		v2 := []string{"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
		return slices.DeleteFunc(v2, func(f string) bool { return slices.Contains(has, f) })
	}
	return nil
}

// listening are the TCP ports that somebody listens on (proc_net_tcp, state 0A).
func (h *Host) listening() []int {
	var ports []int
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := h.ReadFile(file) // a kernel without IPv6 has no second one
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != "0A" {
				continue
			}
			_, text, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseInt(text, 16, 32); err == nil {
				ports = append(ports, int(port))
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// routed tells whether there is a default route of either family.
func (h *Host) routed() *bool {
	found := false
	four, err := h.ReadFile("/proc/net/route")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(four)) {
		fields := strings.Fields(line) // Iface Destination Gateway Flags RefCnt Use Metric Mask
		found = found || len(fields) > 7 && fields[1] == "00000000" && fields[7] == "00000000"
	}
	six, err := h.ReadFile("/proc/net/ipv6_route")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range strings.Lines(string(six)) {
		fields := strings.Fields(line)
		const any = "00000000000000000000000000000000"
		found = found || len(fields) > 9 && fields[0] == any && fields[1] == "00" && usable(fields[8])
	}
	return &found
}

// usable tells whether a route of IPv6 is up and rejects nothing (RTF_UP, RTF_REJECT); the kernel
// itself keeps a default route that rejects everything.
func usable(flags string) bool {
	const up, reject = 0x1, 0x200
	f, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && f&up != 0 && f&reject == 0
}

// resolvers are the name servers of a resolv.conf(5), nil when it cannot be read.
func (h *Host) resolvers(file string) []string {
	text, err := h.ReadFile(file)
	if file == "" || err != nil {
		return nil
	}
	servers := []string{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			servers = append(servers, fields[1])
		}
	}
	return servers
}
