package health

import (
	"errors"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/host"
)

// machine changes the machine of good evidence.
func machine(change func(*Machine)) Evidence {
	e := good()
	change(e.Machine)
	return e
}

func TestSystemSupported(t *testing.T) {
	system := func(id, version string) Evidence {
		return machine(func(m *Machine) { m.OSID, m.OSVersion, m.OSName = id, version, id+" "+version })
	}
	const reason, owner = "UnsupportedSystem", OwnerMachine
	check(t, "SystemSupported", []expect{
		blank("NotChecked"),
		{"arm64", machine(func(m *Machine) { m.Arch = "arm64" }), True, "", "", ""},
		{"riscv", machine(func(m *Machine) { m.Arch = "riscv64" }), False,
			"UnsupportedArchitecture", owner, "riscv64"},
		{"Ubuntu 22.04", system("ubuntu", "22.04"), True, "", "", ""},
		{"Ubuntu 20.04", system("ubuntu", "20.04"), False, reason, owner, "ubuntu 20.04"},
		{"Debian 12", system("debian", "12"), True, "", "", ""},
		{"Debian 11", system("debian", "11"), False, reason, owner, "debian 11"},
		{"Debian testing", system("debian", ""), False, reason, owner, "supported"},
		{"Fedora", system("fedora", "43"), False, reason, owner, "fedora 43"},
		{"a container", machine(func(m *Machine) { m.Systemd = false }), False,
			"NoSystemd", owner, "systemd is not running"},
	})
}

func TestRootPrivileges(t *testing.T) {
	check(t, "RootPrivileges", []expect{
		blank("NotChecked"),
		{"a user", machine(func(m *Machine) { m.UID = 1000 }), False, "NotRoot", OwnerMachine, "sudo"},
	})
}

func TestToolsInstalled(t *testing.T) {
	check(t, "ToolsInstalled", []expect{
		blank("NotChecked"),
		{"no iptables", machine(func(m *Machine) { m.IPTables = false }), False,
			"IPTablesMissing", OwnerMachine, "apt-get install iptables"},
		{"no nft", machine(func(m *Machine) { m.NFTables = false }), False,
			"NFTablesMissing", OwnerMachine, "apt-get install nftables"},
	})
}

func TestSwapLimited(t *testing.T) {
	limited := func(limits bool) Evidence {
		e := machine(func(m *Machine) { m.SwapLimits = limits })
		e.Wanted.Node.Kubelet.Swap, e.Upkeep.Swaps = "LimitedSwap", []string{"/swap.img"}
		return e
	}
	check(t, "SwapLimited", []expect{
		blank("NotChecked"),
		{"off", machine(func(m *Machine) { m.SwapLimits = false }), True, "", "", ""},
		{"cgroup v1", limited(false), False, "NoSwapLimits", OwnerConfiguration, "cgroup v1"},
		{"version 2", limited(true), True, "", "", ""},
	})
	check(t, "SwapOff", []expect{{"limited", limited(true), True, "", "", ""}})
}

func TestPodFeatures(t *testing.T) {
	is := func(kubernetes, containerd, runc, kernel string, ids ...string) Evidence {
		e := machine(func(*Machine) {})
		e.Wanted.Kubernetes.Version, e.Wanted.Containerd.Version = kubernetes, containerd
		e.Wanted.Runc.Version, e.Wanted.Node.MaxPods = runc, 110
		e.Examined = &Examined{Examination: host.Examination{Kernel: kernel, KubeletIDs: ids}}
		return e
	}
	const enough, reason = "65536:7208960 ", "SubordinateIDs"
	compare(t, "PodFeatures", []expect{
		blank("NotChecked"),
		{"new", is("1.36.3", "2.3.4", "1.4.3", "6.8.0-31-generic"), True, "AsExpected", "", ""},
		{"Debian 12", is("1.36.3", "2.3.4", "1.4.3", "6.1.0-27-amd64"), True, "Lacking", "",
			"pods cannot have: user namespaces (hostUsers: false) need Linux 6.3, and " +
				"this is 6.1.0-27-amd64"},
		{"old", is("1.34.4", "2.0.5", "1.3.0", "6.8.0"), True, "Lacking", "",
			"image volumes need Kubernetes 1.35, and this is 1.34.4; image volumes need containerd 2.1"},
		{"left open", is("", "", "", "6.8.0"), True, "AsExpected", "", ""},
		{"ids of a user", is("1.36.3", "2.3.4", "1.4.3", "6.8.0", enough, enough), True, "", "", ""},
		{"no ids", is("1.36.3", "2.3.4", "1.4.3", "6.8.0", "", ""), False, reason, OwnerMachine,
			"110 times"},
		{"too few", is("1.36.3", "2.3.4", "1.4.3", "6.8.0", "65536:65536 ", "65536:65536 "), False,
			reason, OwnerMachine, ""},
		{"as adduser makes them", is("1.36.3", "2.3.4", "1.4.3", "6.8.0", "100000:65536 ",
			"100000:65536 "), False, reason, OwnerMachine, ""},
		{"others for groups", is("1.36.3", "2.3.4", "1.4.3", "6.8.0", enough, ""), False, reason,
			OwnerMachine, ""},
		{"before kubelet asked", is("1.32.0", "2.3.4", "1.4.3", "6.8.0", "", ""), True, "Lacking",
			"", "Kubernetes 1.33"},
	})
}

func TestOwnersSettings(t *testing.T) {
	e := machine(func(*Machine) {})
	e.Examined = &Examined{OwnersSettings: []string{"/etc/kubernetes/kubelet.conf.d/50-a.conf"}}
	compare(t, "OwnersSettings", []expect{
		blank("NotChecked"),
		{"one", e, True, "OfOthers", "", "50-a.conf"},
	})
}

func TestDiskSpace(t *testing.T) {
	free := func(bytes int64, installed bool) Evidence {
		return machine(func(m *Machine) { m.Free["/opt"], m.Installed = bytes, installed })
	}
	const reason, owner = "DiskFull", OwnerMachine
	check(t, "DiskSpace", []expect{
		blank("NotChecked"),
		{"too little for a node", free(1<<30, false), False, reason, owner,
			"1024 MB are free below /opt"},
		{"enough for an update", free(1<<30, true), True, "", "", ""},
		{"too little for an update", free(100<<20, true), False, reason, owner, "at least 512 MB"},
	})
}

func TestFileSystems(t *testing.T) {
	check(t, "FileSystemsWritable", []expect{
		blank("NotChecked"),
		{"read-only", machine(func(m *Machine) { m.ReadOnly = []string{"/var/lib"} }), False, "ReadOnly",
			OwnerMachine, "below: /var/lib;"},
	})
	used := func(percent int) Evidence {
		return machine(func(m *Machine) { m.InodesUsed = map[string]int{"/opt": percent} })
	}
	check(t, "InodesFree", []expect{
		blank("NotChecked"),
		{"few are left", used(maxInodes), True, "", "", ""},
		{"none are left", used(maxInodes + 1), False, "InodesFull", OwnerMachine, "/opt (95 %"},
	})
	if Problem(Evaluate(Preflight, used(maxInodes+1))) == nil {
		t.Error("a join begins without inodes")
	}
}

func TestProgramTrusted(t *testing.T) {
	untrusted := errors.Join(errors.New("/home/u/flex is not owned by root"), errors.New("0664"))
	check(t, "ProgramTrusted", []expect{
		blank("NotChecked"),
		{"anybody may write it", with(func(e *Evidence) { e.Trust = Tried(untrusted) }), False,
			"Untrusted", OwnerMachine, "/home/u/flex is not owned by root; 0664"},
	})
}

func TestRuntimeOwned(t *testing.T) {
	docker := host.InstalledUnit{Name: "docker.service",
		Path: "/lib/systemd/system/docker.service"}
	check(t, "RuntimeOwned", []expect{
		blank("NotChecked"),
		{"docker", machine(func(m *Machine) { m.Units = []host.InstalledUnit{docker} }), False,
			"ForeignRuntime", OwnerMachine, "docker.service (/lib/systemd/system/docker.service)"},
		{"a node with docker", machine(func(m *Machine) { m.Units = []host.InstalledUnit{docker} }),
			False, "ForeignRuntime", OwnerMachine, "(apt-get purge --autoremove), or use another " +
				"machine; on a node, 'aks-flex-node drift --repair'"},
		{"podman", machine(func(m *Machine) { m.EngineNetwork = "/etc/cni/net.d/87-podman.conflist" }),
			False, "ForeignNetwork", OwnerMachine, "mv /etc/cni/net.d/87-podman.conflist /root/"},
		{"its file left by CRI-O", machine(func(m *Machine) {
			m.EngineNetwork = "/etc/cni/net.d/11-crio.conflist"
			m.Units = []host.InstalledUnit{{Name: "crio.service", Path: "/lib/systemd/system/crio.service"}}
		}), False, "ForeignRuntime", OwnerMachine, "crio.service"},
	})
}

func TestDirectoriesFree(t *testing.T) {
	check(t, "DirectoriesFree", []expect{
		blank("NotChecked"),
		{"an earlier node", machine(func(m *Machine) {
			m.ForeignDirectories = []string{"/var/lib/kubelet"}
		}), False, "ForeignState", OwnerMachine, "/var/lib/kubelet is not empty"},
	})
}

// R7: an address that the machine does not have was committed as healthy.
func TestNodeAddressPresent(t *testing.T) {
	ip := func(text string) Evidence {
		return with(func(e *Evidence) { e.Wanted.Node.Kubelet.NodeIP = text })
	}
	const reason, owner = "AddressMissing", OwnerConfiguration
	check(t, "NodeAddressPresent", []expect{
		{"not asked", with(func(e *Evidence) { e.Machine = nil }), Unknown,
			"NotChecked", "", ""},
		{"kubelet chooses", ip(""), True, "", "", ""},
		{"an address of another machine", ip("203.0.113.7"), False, reason, owner, "203.0.113.7"},
		{"both families", ip("10.0.0.4,fd00::4"), True, "", "", ""},
		{"one of two", ip("10.0.0.4, fd00::5"), False, reason, owner, "fd00::5"},
		{"another spelling", ip("fd00:0:0::4"), True, "", "", ""},
		{"of a zone", ip("fe80::1"), True, "", "", ""},
		{"any IPv6", ip("::"), True, "", "", ""},
		{"no address", ip("eth0"), False, reason, owner, "eth0"},
	})
}

// Pod subnets of a family that the machine or the cluster does not have are reported before pods
// fail to start.
func TestPodSubnetsFit(t *testing.T) {
	pods := func(noIPv6 bool, cidrs ...string) Evidence {
		return machine(func(m *Machine) { m.NoIPv6, m.PodCIDRs = noIPv6, cidrs })
	}
	const four, six = "10.244.1.0/24", "fd00:1::/64"
	const off, missing = "IPv6Off", "FamilyMissing"
	ofOwner := pods(false, four)
	ofOwner.Wanted.CNI.NonMasqueradeCIDRs = nil
	apiServer := pods(false, four, six)
	apiServer.Wanted.Node.Kubelet.ServerURL = "https://10.244.1.9:6443"
	found := pods(false, four, six)
	found.Machine.Server = "https://10.244.1.8:6443"
	check(t, "PodSubnetsFit", []expect{
		blank("NotChecked"),
		{"not known yet", pods(false), True, "", "", ""},
		{"not known yet, without IPv6", pods(true), True, "", "", ""},
		{"both, without IPv6", pods(true, four, six), False, off, OwnerMachine, six},
		{"IPv6, without IPv6", pods(true, six), False, off, OwnerMachine, "disable_ipv6"},
		{"IPv4 where both are wanted", pods(false, four), False, missing, OwnerCluster,
			"no subnet of IPv6"},
		{"IPv6 where both are wanted", pods(false, six), False, missing, OwnerCluster,
			"no subnet of IPv4"},
		{"IPv4 that the configuration gives", ofOwner, True, "", "", ""},
		{"with the machine's address", pods(false, "10.0.0.0/24", six), False, "OverlapsMachine",
			OwnerConfiguration, "10.0.0.4"},
		{"with its DNS server", pods(false, "192.0.2.0/24", six), False, "OverlapsMachine",
			OwnerConfiguration, "192.0.2.1"},
		{"with the API server", apiServer, False, "OverlapsMachine", OwnerConfiguration, "10.244.1.9"},
		{"with the API server that was found", found, False, "OverlapsMachine", OwnerConfiguration,
			"10.244.1.8"},
		{"with its IPv6 address", pods(false, four, "fd00::/64"), False, "OverlapsMachine",
			OwnerConfiguration, "fd00::4"},
	})
}

// R6: reservations that the machine does not have make kubelet crash again and again.
func TestReservationsFit(t *testing.T) {
	reserve := func(what, text string) Evidence {
		return with(func(e *Evidence) { e.Wanted.Node.Kubelet.KubeReserved[what] = text })
	}
	evict := func(what, text string) Evidence {
		return with(func(e *Evidence) {
			e.Wanted.Node.Kubelet.EvictionHard = map[string]string{what: text}
		})
	}
	const reason, bad, owner = "NothingAllocatable", "InvalidQuantity", OwnerConfiguration
	check(t, "ReservationsFit", []expect{
		blank("NotChecked"),
		{"nothing reserved", with(func(e *Evidence) { e.Wanted.Node.Kubelet.KubeReserved = nil }), True,
			"", "", ""},
		{"900 GB of memory", reserve("memory", "900Gi"), False, reason, owner, "memory: "},
		{"900 CPUs", reserve("cpu", "900"), False, reason, owner, "cpu: 900000m of 4000m"},
		{"all CPUs", reserve("cpu", "4"), False, reason, owner, "cpu: 4000m of 4000m"},
		{"an absurd amount", reserve("memory", "8E"), False, reason, owner, "memory: "},
		{"all but what is evicted", reserve("memory", "8100Mi"), False, reason, owner, "memory: "},
		{"most of it", reserve("memory", "7Gi"), True, "", "", ""},
		{"disk", reserve("ephemeral-storage", "60Gi"), False, reason, owner, "disk: "},
		{"an eviction of all", evict("memory.available", "99.9%"), False, reason, owner, "memory: "},
		{"an ignored eviction", evict("memory.available", "100%"), True, "", "", ""},
		{"an eviction of 5 %", evict("memory.available", "5%"), True, "", "", ""},
		{"an eviction of all disk", evict("nodefs.available", "64Gi"), False, reason, owner, "disk: "},
		{"nearly all process IDs", with(func(e *Evidence) {
			e.Wanted.Node.Kubelet.KubeReserved["pid"], e.Machine.MaxPIDs = "7500", 8000
		}), False, reason, owner, "process IDs: 7500 of 8000"},
		{"few process IDs", with(func(e *Evidence) {
			e.Wanted.Node.Kubelet.KubeReserved["pid"], e.Machine.MaxPIDs = "1k", 8000
		}), True, "", "", ""},
		{"no quantity", reserve("cpu", "lots"), False, bad, owner, `"lots"`},
		{"no percentage", evict("nodefs.available", "x%"), False, bad, owner, `"x%"`},
		{"a machine too small for the system itself", machine(func(m *Machine) {
			m.MemoryBytes = 300 << 20
		}), False, reason, owner, "memory: "},
	})
}
