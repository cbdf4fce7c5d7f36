package host

import (
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// query returns the query of the tests.
func query() Query {
	return Query{
		CNIConfDir: "/etc/cni/net.d", Filesystems: []string{"/var/lib"},
		Units: []string{"docker.service", "kubelet.service"},
	}
}

// The trees are those of the kernel's documentation (admin-guide/cgroup-v2, cgroup-v1/memory), not
// recorded from machines.
func TestControlGroups(t *testing.T) {
	for name, tt := range map[string]struct {
		files   map[string]string
		version int
		missing []string
		limits  bool
	}{
		"version 2": {map[string]string{
			"/sys/fs/cgroup/cgroup.controllers":           "cpuset cpu io memory hugetlb pids rdma misc\n",
			"/sys/fs/cgroup/system.slice/memory.swap.max": "max\n"}, 2, nil, true},
		"version 2, swapaccount=0": {map[string]string{
			"/sys/fs/cgroup/cgroup.controllers":      "cpuset cpu io memory pids\n",
			"/sys/fs/cgroup/system.slice/memory.max": "max\n"}, 2, nil, false},
		"version 2, cgroup_disable=memory": {map[string]string{
			"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io pids\n"}, 2, []string{"memory"}, false},
		"version 1": {map[string]string{
			"/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes":              "9223372036854771712\n",
			"/sys/fs/cgroup/memory/system.slice/memory.memsw.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/unified/cgroup.procs":                            ""}, 1, nil, false},
		"none": {nil, 0, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := testHost(t)
			for file, text := range tt.files {
				write(t, h, file, text)
			}
			version, missing := h.cgroups()
			if version != tt.version || !slices.Equal(missing, tt.missing) || h.swapLimits() != tt.limits {
				t.Errorf("version %d, missing %v, limits of swap: %v", version, missing, h.swapLimits())
			}
		})
	}
}

func TestKubeletIDs(t *testing.T) {
	h := testHost(t)
	write(t, h, "/etc/subuid", "admin:100000:65536\nkubelet:65536:7208960\n")
	write(t, h, "/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
	write(t, h, "/usr/bin/getsubids", "")
	if got := h.kubeletIDs(); got != nil {
		t.Errorf("without the user: %q", got)
	}
	write(t, h, "/etc/passwd", "root:x:0:0::/root:/bin/sh\nkubelet:x:999:999::/:/bin/false\n")
	if got := h.kubeletIDs(); !slices.Equal(got, []string{"65536:7208960 ", ""}) {
		t.Errorf("%q", got)
	}
}

func TestFacts(t *testing.T) {
	h := testHost(t)
	write(t, h, "/usr/lib/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n# x\n")
	write(t, h, "/etc/resolv.conf", "search example\nnameserver\nnameserver 127.0.0.1\n"+
		"nameserver ::1\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\n")
	write(t, h, "/proc/sys/kernel/hostname", "lease-7\n")
	write(t, h, "/etc/hostname", " Edge-1\n")
	write(t, h, "/etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n")
	write(t, h, "/proc/device-tree/vm,uuid", "4C4C4544-0031\x00")
	write(t, h, "/etc/cni/net.d/10-x.conflist", "{}")
	write(t, h, "/etc/cni/net.d/README", "")
	write(t, h, "/proc/swaps", "Filename\n/swap.img file 1 0 -2\n")
	write(t, h, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n")
	write(t, h, "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
	mkdir(t, h, "/var/lib")
	mkdir(t, h, "/run/systemd/system")
	systemd := h.Systemd.(*units)
	systemd.known["docker.service"] = UnitStatus{Path: "/lib/docker.service"}
	systemd.known["a.swap"] = UnitStatus{Path: "/run/systemd/generator/a.swap"}
	systemd.known["link.swap"] = UnitStatus{Active: "active"}
	f, err := h.Facts(t.Context(), query())
	if err != nil {
		t.Fatal(err)
	}
	if f.OSID != "ubuntu" || f.OSVersion != "24.04" || f.ResolvConf != "/etc/resolv.conf" {
		t.Errorf("the system is %+v", f)
	}
	if !slices.Equal(f.Resolvers, []string{"192.0.2.1"}) {
		t.Errorf("the name servers for pods are %v", f.Resolvers)
	}
	if f.HostName != "lease-7" || f.StaticName != "Edge-1" {
		t.Errorf("the names are %q and %q", f.HostName, f.StaticName)
	}
	if f.MachineID != "3d1219c7c4c5404aaa1f6d2a48adfda4" || f.SystemUUID != "4C4C4544-0031" {
		t.Errorf("the machine is %q, %q", f.MachineID, f.SystemUUID)
	}
	if !slices.Equal(f.CNIConfigs, []string{"10-x.conflist"}) || !f.Systemd || f.UID != 0 {
		t.Errorf("the facts are %+v", f)
	}
	if len(f.Swaps) != 1 || !slices.Equal(f.SwapUnits, []string{"a.swap"}) {
		t.Errorf("swap is %v, %v", f.Swaps, f.SwapUnits)
	}
	docker := InstalledUnit{Name: "docker.service", Path: "/lib/docker.service"}
	if !slices.Equal(f.Units, []InstalledUnit{docker}) {
		t.Errorf("the units are %v", f.Units)
	}
	if f.CPUs < 1000 || f.CPUs%1000 != 0 || f.MemoryBytes < 1<<20 {
		t.Errorf("there are %d CPUs and %d bytes of memory", f.CPUs, f.MemoryBytes)
	}
	if !maps.Equal(f.HugePages, map[int64]int64{2 << 20: 6 << 20, 1 << 30: 0}) {
		t.Errorf("huge pages are %v", f.HugePages)
	}
	if f.DiskBytes < f.Free["/var/lib"] || f.DiskBytes == 0 {
		t.Errorf("the disk has %d bytes, %d free", f.DiskBytes, f.Free["/var/lib"])
	}
	if _, known := f.InodesUsed["/var/lib"]; !known || len(f.InodesUsed) > 1 || len(f.ReadOnly) > 0 {
		t.Errorf("the inodes in use are %v, read-only is %v", f.InodesUsed, f.ReadOnly)
	}
	if !slices.Contains(f.Addresses, "127.0.0.1") {
		t.Errorf("the addresses are %v", f.Addresses)
	}
	var shm unix.Statfs_t
	if err := errors.Join(unix.Statfs("/dev/shm", &shm),
		os.Symlink("/dev/shm", h.path("/var/lib/kubelet"))); err != nil {
		t.Fatal(err)
	}
	q := query()
	q.KubeletDir = "/var/lib/kubelet/of/a/node"
	f, err = h.Facts(t.Context(), q)
	if err != nil || f.DiskBytes != int64(shm.Blocks)*shm.Bsize {
		t.Errorf("a disk of kubelet's own has %d bytes, %v", f.DiskBytes, err)
	}
	if _, known := f.InodesUsed["/var/lib/kubelet"]; !known || len(f.Free) != 1 {
		t.Errorf("the inodes in use are %v, free is %v", f.InodesUsed, f.Free)
	}
	systemd.broken = errors.New("broken")
	if _, err := h.Facts(t.Context(), query()); !errors.Is(err, systemd.broken) {
		t.Errorf("the error is %v", err)
	}
}

// The processors are those that are online now, as kubelet counts them.
func TestCPUs(t *testing.T) {
	h := testHost(t)
	if n, err := h.cpus(); err != nil || n != runtime.NumCPU() {
		t.Errorf("without a list there are %d processors, %v", n, err)
	}
	for list, want := range map[string]int{
		"0\n": 1, "0-3\n": 4, "0,2-3,8-15\n": 11, "": 0, "\n": 0, "x": 0, "3-1": 0, "0-": 0, "0-1x": 0,
	} {
		write(t, h, "/sys/devices/system/cpu/online", list)
		if n, err := h.cpus(); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d processors, %v; want %d", list, n, err, want)
		}
	}
	mkdir(t, h, "/var/lib")
	write(t, h, "/etc/os-release", "ID=x\n")
	write(t, h, "/sys/devices/system/cpu/online", "x")
	if _, err := h.Facts(t.Context(), query()); err == nil {
		t.Error("a list of another form was accepted")
	}
	write(t, h, "/sys/devices/system/cpu/online", "0-895\n")
	write(t, h, "/proc/sys/kernel/pid_max", "4194304\n")
	write(t, h, "/proc/sys/kernel/threads-max", "7600\n")
	if f, err := h.Facts(t.Context(), query()); err != nil || f.CPUs != 896_000 || f.MaxPIDs != 7600 {
		t.Errorf("there are %d thousandths and %d process IDs, %v", f.CPUs, f.MaxPIDs, err)
	}
}

func TestFactsErrors(t *testing.T) {
	h := testHost(t)
	for _, missing := range []string{"os-release", "a file system", "/var/lib"} {
		if _, err := h.Facts(t.Context(), query()); err == nil {
			t.Errorf("without %s there is no error", missing)
		}
		switch missing {
		case "os-release":
			write(t, h, "/etc/os-release", "ID=x\n")
		case "a file system":
			mkdir(t, h, "/var/lib")
		}
		if missing == "a file system" {
			write(t, h, "/etc/cni/net.d", "no directory")
		}
	}
	q := query()
	q.CNIConfDir = "/none"
	if f, err := h.Facts(t.Context(), q); err != nil || f.Systemd {
		t.Errorf("a machine without systemd: %+v, %v", f, err)
	} else if f.HostName != "" || f.StaticName != "" {
		t.Errorf("the names of one without are %q and %q", f.HostName, f.StaticName)
	}
	write(t, h, "/proc/swaps", "/swap.img file 1 0 x\n")
	if _, err := h.Facts(t.Context(), q); err == nil {
		t.Error("a list of swap areas of another form was accepted")
	}
}
