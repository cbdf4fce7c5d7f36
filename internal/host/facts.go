package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Query says which places and units Facts asks for.
type Query struct {
	// CNIConfDir is where network configurations are.
	CNIConfDir string
	// Filesystems are directories whose free space is wanted.
	Filesystems []string
	// Units are the names of units that are asked for.
	Units []string
	// Firewalls tells that firewalls are asked for.
	Firewalls bool
}

// Facts is what must be known of a machine before it is touched.
type Facts struct {
	UID     int
	Arch    string
	Systemd bool
	// HostName is the kernel's; "" where it does not tell.
	HostName string
	// StaticName is that of /etc/hostname, which the kernel has after a boot where nobody, such as a
	// DHCP server, says another; "" where there is none.
	StaticName string
	// MachineID and SystemUUID tell this machine from others, as kubelet reports them; "" where it
	// has none.
	MachineID, SystemUUID string
	// NvidiaRuntime is the path of NVIDIA's container runtime; "" where it is not installed.
	NvidiaRuntime string
	// OSID and OSVersion are ID and VERSION_ID of os-release(5), OSName is its PRETTY_NAME.
	OSID, OSVersion, OSName string
	// ResolvConf is the resolver configuration with real servers: systemd-resolved's when it runs,
	// else /etc/resolv.conf; "" when there is neither.
	ResolvConf string
	// Resolvers are the name servers of ResolvConf.
	Resolvers []string
	// Swaps are the swap areas in use, SwapUnits the units that systemd would start at boot.
	Swaps     []state.SwapArea
	SwapUnits []string
	// CNIConfigs are the names of the network configurations, in the order in which a runtime reads
	// them.
	CNIConfigs []string
	// IPTables and NFTables report whether these programs are installed.
	IPTables, NFTables bool
	// Free is the free space in bytes below each directory asked for.
	Free map[string]int64
	// Units are those of the units asked for that are installed.
	Units []InstalledUnit
	// NoIPv6 tells that a new network interface has no address of IPv6.
	NoIPv6 bool
	// Addresses are the IP addresses of all network interfaces.
	Addresses []string
	// Advertised are the network interfaces whose default route of IPv6 the kernel gives up when it
	// forwards.
	Advertised []string
	// Firewalls are those that stop packets of a node. FirewallErr is why that is not known.
	Firewalls   []Firewall
	FirewallErr error
	// CPUs is how much processor there is, in thousandths of one; MemoryBytes the physical memory,
	// and DiskBytes the size of the file system of /var/lib.
	CPUs                   int
	MemoryBytes, DiskBytes int64
	// HugePages are the bytes in huge pages, by the bytes of one.
	HugePages map[int64]int64
}

// InstalledUnit is a unit with its file.
type InstalledUnit struct{ Name, Path string }

// Facts finds out about the machine. It changes nothing.
func (h *Host) Facts(ctx context.Context, q Query) (Facts, error) {
	f := Facts{UID: os.Geteuid(), Arch: runtime.GOARCH, Free: make(map[string]int64)}
	if h.Root != "" {
		f.UID = 0
	}
	if _, err := os.Stat(h.path("/run/systemd/system")); err == nil {
		f.Systemd = true
	}
	if name, err := h.ReadFile("/proc/sys/kernel/hostname"); err == nil {
		f.HostName = strings.TrimSpace(string(name))
	}
	if name, err := h.ReadFile("/etc/hostname"); err == nil {
		f.StaticName = strings.TrimSpace(string(name))
	}
	f.MachineID, f.SystemUUID = h.machineID(), h.systemUUID()
	const nvidia = "/usr/bin/nvidia-container-runtime"
	if info, err := os.Stat(h.path(nvidia)); err == nil && info.Mode().Perm()&0o111 != 0 {
		f.NvidiaRuntime = nvidia
	}
	release, err := h.osRelease()
	if err != nil {
		return f, err
	}
	f.OSID, f.OSVersion, f.OSName = release["ID"], release["VERSION_ID"], release["PRETTY_NAME"]
	for _, path := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		if _, err := os.Stat(h.path(path)); err == nil && f.ResolvConf == "" {
			f.ResolvConf = path
		}
	}
	f.Resolvers = h.resolvers(f.ResolvConf)
	if f.Swaps, err = h.swaps(); err != nil {
		return f, err
	}
	if f.CNIConfigs, err = h.CNIConfigs(q.CNIConfDir); err != nil {
		return f, err
	}
	_, err = exec.LookPath("iptables")
	f.IPTables = err == nil || h.Root != ""
	_, err = exec.LookPath("nft")
	f.NFTables = err == nil || h.Root != ""
	if err := h.sizes(q, &f); err != nil {
		return f, err
	}
	if f.Addresses, err = addresses(); err != nil {
		return f, err
	}
	f.NoIPv6 = h.noIPv6()
	if f.Advertised, err = h.advertised(); err != nil {
		return f, err
	}
	if q.Firewalls {
		f.Firewalls, f.FirewallErr = h.Firewalls(ctx)
	}
	if !f.Systemd {
		return f, nil
	}
	return f, h.unitFacts(ctx, q, &f)
}

// cpus returns the number of processors that are online now, as kubelet counts them; where the
// kernel has no list, those of this process.
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
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.ParseUint(low, 10, 16)
		last, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || last < first {
			return 0, fmt.Errorf("cannot count the processors: %q is no list of them", text)
		}
		n += int(last-first) + 1
	}
	return n, nil
}

// sizes finds out how much there is of everything that can be used up.
func (h *Host) sizes(q Query, f *Facts) error {
	cpus, err := h.cpus()
	if err != nil {
		return err
	}
	f.CPUs = cpus * 1000
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return fmt.Errorf("cannot tell the size of the memory: %w", err)
	}
	f.MemoryBytes = int64(memory.Totalram) * int64(memory.Unit)
	var st unix.Statfs_t
	for _, dir := range q.Filesystems {
		if err := unix.Statfs(h.path(dir), &st); err != nil {
			return fmt.Errorf("cannot tell the free space of %s: %w", dir, err)
		}
		f.Free[dir] = int64(st.Bavail) * st.Bsize
	}
	if err := unix.Statfs(h.path("/var/lib"), &st); err != nil {
		return fmt.Errorf("cannot tell the size of the file system of /var/lib: %w", err)
	}
	f.DiskBytes = int64(st.Blocks) * st.Bsize
	return h.hugePages(f)
}

// hugePages finds out how much memory is in huge pages (the kernel's admin-guide/mm/hugetlbpage).
func (h *Host) hugePages(f *Facts) error {
	const dir = "/sys/kernel/mm/hugepages"
	sizes, err := os.ReadDir(h.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot list the sizes of huge pages: %w", err)
	}
	f.HugePages = make(map[int64]int64)
	for _, entry := range sizes {
		var size, pages int64
		if _, err := fmt.Sscanf(entry.Name(), "hugepages-%dkB", &size); err != nil {
			continue
		}
		text, err := h.ReadFile(filepath.Join(dir, entry.Name(), "nr_hugepages"))
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(string(text), &pages); err != nil {
			return fmt.Errorf("cannot tell how many huge pages of %d kB there are: %w", size, err)
		}
		f.HugePages[size<<10] = pages * size << 10
	}
	return nil
}

// noIPv6 tells whether IPv6 is not in the kernel or is switched off, for all interfaces or for
// those to come.
func (h *Host) noIPv6() bool {
	for _, which := range []string{"all", "default"} {
		off, err := h.ReadFile("/proc/sys/net/ipv6/conf/" + which + "/disable_ipv6")
		if err != nil || strings.TrimSpace(string(off)) != "0" {
			return true
		}
	}
	return false
}

// addresses lists the IP addresses of all interfaces.
func addresses() ([]string, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("cannot list the addresses of the machine: %w", err)
	}
	var list []string
	for _, n := range nets {
		if ip, ok := n.(*net.IPNet); ok {
			list = append(list, ip.IP.String())
		}
	}
	return list, nil
}

func (h *Host) unitFacts(ctx context.Context, q Query, f *Facts) error {
	names, err := h.Systemd.Units(ctx, "*.swap")
	if err != nil {
		return fmt.Errorf("cannot list the swap units: %w", err)
	}
	f.SwapUnits = names
	if len(q.Units) == 0 {
		return nil
	}
	files, err := h.Systemd.Fragments(ctx, q.Units)
	if err != nil {
		return fmt.Errorf("cannot observe %s: %w", strings.Join(q.Units, ", "), err)
	}
	for _, name := range q.Units {
		if file := files[name]; file != "" {
			f.Units = append(f.Units, InstalledUnit{Name: name, Path: file})
		}
	}
	return nil
}

// osRelease reads os-release(5).
func (h *Host) osRelease() (map[string]string, error) {
	f, err := h.Open("/etc/os-release")
	if errors.Is(err, fs.ErrNotExist) {
		f, err = h.Open("/usr/lib/os-release")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot tell the operating system: %w", err)
	}
	defer f.Close()
	release := make(map[string]string)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok {
			release[key] = strings.Trim(value, `"'`)
		}
	}
	return release, lines.Err()
}

// CNIConfigs lists the files of a directory that a runtime takes for network configurations, in the
// order in which it reads them.
func (h *Host) CNIConfigs(dir string) ([]string, error) {
	entries, err := os.ReadDir(h.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the CNI configurations: %w", err)
	}
	var names []string
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
