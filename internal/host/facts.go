package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/distro"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Query selects the places and units that Facts examines.
type Query struct {
	CNIConfDir  string   // where network configurations are
	KubeletDir  string   // kubelet's root directory, which may not exist yet
	Filesystems []string // directories whose free space is wanted
	Units       []string // the names of units
	Firewalls   bool
}

// Facts holds the facts about a machine that must be known before it is touched.
type Facts struct {
	UID     int
	Arch    string
	Systemd bool
	// HostName is the kernel's; StaticName that of /etc/hostname, which the kernel has after a boot
	// unless another, such as a DHCP server's, replaces it. Both may be "".
	HostName, StaticName  string
	MachineID, SystemUUID string // as kubelet reports them; "" where the machine has none
	NvidiaRuntime         string // the path of NVIDIA's container runtime; "" if not installed
	// OSID, OSVersion and OSName are ID, VERSION_ID and PRETTY_NAME of os-release(5).
	OSID, OSVersion, OSName string
	// ResolvConf is the resolver configuration with real servers: systemd-resolved's if it runs, else
	// /etc/resolv.conf; "" if neither exists. Resolvers are its name servers for pods; nil if unknown.
	ResolvConf string
	Resolvers  []string
	Swaps      []state.SwapArea // the swap areas in use
	SwapUnits  []string         // the swap units that systemd would start at boot
	SwapLimits bool             // the kernel can limit the swap of a container
	CNIConfigs []string         // in the order in which a runtime reads them

	IPTables, NFTables bool             // whether these programs are installed
	Free               map[string]int64 // free bytes below directories asked for, and of full disks
	InodesUsed         map[string]int   // the percentage of inodes in use, by directory
	ReadOnly           []string         // the directories on a read-only file system
	Units              []InstalledUnit  // the installed ones of Query.Units
	NoIPv6             bool             // a new network interface has no address of IPv6
	Addresses          []string         // the IP addresses of all network interfaces
	Advertised         []string         // interfaces whose IPv6 default route is lost by forwarding
	Firewalls          []state.Firewall // those that stop packets of a node
	FirewallErr        error            // the error of finding them
	CPUs               int              // in thousandths of a processor
	MemoryBytes        int64            // the physical memory
	MaxPIDs            int              // as kubelet computes them; 0 if unknown
	DiskBytes          int64            // the size of the file system of KubeletDir
	HugePages          map[int64]int64  // the bytes in huge pages, by the bytes of one
}

// InstalledUnit is a unit and the path of its file.
type InstalledUnit struct{ Name, Path string }

// Facts reads the facts about the machine. It changes nothing.
func (h *Host) Facts(ctx context.Context, q Query) (Facts, error) {
	f := Facts{UID: os.Geteuid(), Arch: runtime.GOARCH, Free: make(map[string]int64),
		InodesUsed: make(map[string]int)}
	if h.Root != "" {
		f.UID = 0
	}
	f.Systemd = h.exists("/run/systemd/system")
	f.HostName, f.StaticName = h.text("/proc/sys/kernel/hostname"), h.text("/etc/hostname")
	f.MachineID = h.text("/etc/machine-id", "/var/lib/dbus/machine-id")
	// As cAdvisor's GetSystemUUID finds it.
	f.SystemUUID = h.text("/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id",
		"/proc/device-tree/vm,uuid", "/etc/machine-id")
	const nvidia = "/usr/bin/nvidia-container-runtime"
	if info, err := os.Stat(h.path(nvidia)); err == nil && info.Mode().Perm()&0o111 != 0 {
		f.NvidiaRuntime = nvidia
	}
	for _, path := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		if f.ResolvConf == "" && h.exists(path) {
			f.ResolvConf = path
		}
	}
	f.Resolvers, f.SwapLimits = h.resolvers(f.ResolvConf), h.swapLimits()
	for name, has := range map[string]*bool{"iptables": &f.IPTables, "nft": &f.NFTables} {
		_, err := exec.LookPath(name)
		*has = err == nil || h.Root != ""
	}
	for _, which := range []string{"all", "default"} {
		f.NoIPv6 = f.NoIPv6 || h.text("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6") != "0"
	}
	is := h.settings(OSRelease, distro.VendorRelease)
	if len(is) == 0 {
		return f, errors.New("cannot tell the operating system: there is no " + OSRelease)
	}
	f.OSID, f.OSVersion, f.OSName = is["ID"], is["VERSION_ID"], is["PRETTY_NAME"]
	err := h.sizes(q, &f)
	if err == nil {
		err = h.network(q, &f)
	}
	if err == nil && f.Systemd {
		err = h.unitFacts(ctx, q, &f)
	}
	return f, err
}

func (h *Host) network(q Query, f *Facts) error {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("cannot list the addresses of the machine: %w", err)
	}
	var ofPods []net.Addr
	if bridge, err := net.InterfaceByName("cni0"); err == nil { // a node that has run pods
		ofPods, _ = bridge.Addrs()
	}
	for _, n := range nets {
		same := func(p net.Addr) bool { return p.String() == n.String() }
		if ip, ok := n.(*net.IPNet); ok && !slices.ContainsFunc(ofPods, same) {
			f.Addresses = append(f.Addresses, ip.IP.String())
		}
	}
	if f.Advertised, err = h.advertised(); err != nil {
		return err
	}
	if q.Firewalls {
		f.Firewalls, f.FirewallErr = h.Firewalls()
	}
	f.CNIConfigs, err = h.CNIConfigs(q.CNIConfDir)
	return err
}

// cpus counts the processors that are online, as kubelet does; else those of this process.
func (h *Host) cpus() (int, error) {
	text, err := h.ReadFile("/sys/devices/system/cpu/online")
	if errors.Is(err, fs.ErrNotExist) {
		return runtime.NumCPU(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot count the processors: %w", err)
	}
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, ok := ends(part)
		if !ok || last < first {
			return 0, fmt.Errorf("cannot count the processors: %q is no list of them", text)
		}
		n += int(last-first) + 1
	}
	return n, nil
}

func (h *Host) sizes(q Query, f *Facts) error {
	cpus, err := h.cpus()
	if err != nil {
		return err
	}
	if f.Swaps, err = h.swaps(); err != nil {
		return err
	}
	f.CPUs = cpus * 1000
	ids, _ := strconv.Atoi(h.text("/proc/sys/kernel/pid_max"))
	threads, _ := strconv.Atoi(h.text("/proc/sys/kernel/threads-max"))
	f.MaxPIDs = min(ids, threads)
	var memory unix.Sysinfo_t
	_ = unix.Sysinfo(&memory) // fails only for a wrong address (sysinfo(2))
	f.MemoryBytes = int64(memory.Totalram) * int64(memory.Unit)
	seen := make(map[unix.Fsid]bool)
	for i, dir := range append(slices.Clone(q.Filesystems), "/var/lib/containerd", q.KubeletDir) {
		asked := i < len(q.Filesystems)
		for !asked && !h.exists(dir) {
			dir = filepath.Dir(dir)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(h.path(dir), &st); err != nil {
			return fmt.Errorf("cannot examine the file system of %s: %w", dir, err)
		}
		f.DiskBytes = int64(st.Blocks) * st.Bsize // the last one is kubelet's
		if !asked && seen[st.Fsid] {
			continue // it has no disk of its own
		}
		if asked || st.Blocks > 0 && st.Bfree == 0 { // how much an own disk needs is not known
			f.Free[dir] = int64(st.Bavail) * st.Bsize
		}
		seen[st.Fsid] = true
		if st.Files > 0 { // btrfs and others have no inodes to run out of
			f.InodesUsed[dir] = int(100 * (st.Files - min(st.Ffree, st.Files)) / st.Files)
		}
		if st.Flags&unix.ST_RDONLY != 0 {
			f.ReadOnly = append(f.ReadOnly, dir)
		}
	}
	return h.hugePages(f)
}

// hugePages reads how much memory is in huge pages (the kernel's admin-guide/mm/hugetlbpage).
func (h *Host) hugePages(f *Facts) error {
	const dir = "/sys/kernel/mm/hugepages"
	sizes, err := h.List(dir)
	if except(err, fs.ErrNotExist) != nil {
		return fmt.Errorf("cannot list the sizes of huge pages: %w", err)
	}
	f.HugePages = make(map[int64]int64)
	for _, name := range sizes {
		var size, pages int64
		if _, err := fmt.Sscanf(name, "hugepages-%dkB", &size); err != nil {
			continue
		}
		if _, err := fmt.Sscan(h.text(filepath.Join(dir, name, "nr_hugepages")), &pages); err != nil {
			return fmt.Errorf("cannot tell how many huge pages of %d kB there are: %w", size, err)
		}
		f.HugePages[size<<10] = pages * size << 10
	}
	return nil
}

func (h *Host) unitFacts(ctx context.Context, q Query, f *Facts) error {
	swaps, err := h.Systemd.Units(ctx, "*.swap")
	if err != nil {
		return fmt.Errorf("cannot list the swap units: %w", err)
	}
	files, err := h.Systemd.Fragments(ctx, slices.Concat(q.Units, swaps))
	if err != nil {
		return fmt.Errorf("cannot observe %s: %w", strings.Join(q.Units, ", "), err)
	}
	// systemd also lists each other link of an active area's device, without a file.
	f.SwapUnits = slices.DeleteFunc(swaps, func(name string) bool { return files[name] == "" })
	for _, name := range q.Units {
		if file := files[name]; file != "" {
			f.Units = append(f.Units, InstalledUnit{Name: name, Path: file})
		}
	}
	return nil
}

// OSRelease is the file that names the distribution.
const OSRelease = distro.Release

// CNIConfigs lists the network configurations in a directory, in the order of a container runtime.
func (h *Host) CNIConfigs(dir string) ([]string, error) {
	names, err := h.List(dir)
	if except(err, fs.ErrNotExist) != nil {
		return nil, fmt.Errorf("cannot list the CNI configurations: %w", err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(name))
	}), nil
}

// Flags of a route (linux/route.h, linux/ipv6_route.h): it is up, it rejects, it is a default
// route, and the kernel learned it from a router advertisement. Routes of systemd-networkd and
// NetworkManager, which listen themselves, lack the last one.
const rtfUp, rtfReject, rtfDefault, rtfAddrConf = 0x1, 0x200, 0x10000, 0x40000

// isDefault6 reports whether a row of /proc/net/ipv6_route is a default route with certain flags.
func isDefault6(row []string, all, none uint64) bool {
	const anywhere = "00000000000000000000000000000000"
	if len(row) < 10 || row[0] != anywhere || row[1] != "00" {
		return false
	}
	flags, err := strconv.ParseUint(row[8], 16, 32)
	return err == nil && flags&all == all && flags&none == 0
}

// routed reports whether there is a default route of either family; nil if unknown. The kernel
// itself keeps a default route of IPv6 that rejects everything.
func (h *Host) routed() *bool {
	four, err := h.rows("/proc/net/route")
	six, err6 := h.rows("/proc/net/ipv6_route")
	if err != nil || except(err6, fs.ErrNotExist) != nil {
		return nil
	}
	// Iface Destination Gateway Flags RefCnt Use Metric Mask
	found := slices.ContainsFunc(four, func(row []string) bool {
		return len(row) > 7 && row[1] == "00000000" && row[7] == "00000000"
	}) || slices.ContainsFunc(six, func(row []string) bool {
		return isDefault6(row, rtfUp, rtfReject)
	})
	return &found
}

// advertised lists interfaces with an IPv6 default route that the kernel learned from a router and
// gives up when it forwards (accept_ra is 1; Linux, networking/ip-sysctl).
func (h *Host) advertised() ([]string, error) {
	rows, err := h.rows("/proc/net/ipv6_route")
	if except(err, fs.ErrNotExist) != nil { // a kernel without IPv6
		return nil, fmt.Errorf("cannot read the routes of IPv6: %w", err)
	}
	var found []string
	for _, row := range rows {
		if isDefault6(row, rtfDefault|rtfAddrConf, 0) &&
			h.text("/proc/sys/net/ipv6/conf/"+row[9]+"/accept_ra") == "1" {
			found = append(found, row[9])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
