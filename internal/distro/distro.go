// Package distro holds the names that differ between Linux distributions: packages, units, paths,
// and the commands of their package managers. A distribution is one entry of Known. The package
// reads and runs nothing; package node holds the names of a node's own things and of Kubernetes'.
package distro

import (
	"fmt"
	"slices"
	"strings"
)

// Files of every distribution with systemd.
const (
	Release       = "/etc/os-release" // os-release(5): ID finds the entry
	VendorRelease = "/usr/lib/os-release"
)

// Needrestart is the configuration directory of needrestart, which Debian runs after upgrades.
const Needrestart = "/etc/needrestart"

// Advice is a command for people, or a part of one: a constant, and never untrusted text.
type Advice string

// Distro is a distribution.
type Distro struct {
	ID, Name string            // ID is the one in os-release(5)
	Oldest   string            // the VERSION_ID of the oldest supported release
	Suites   map[string]string // the suites of Microsoft's repositories, by VERSION_ID
	Manager  Manager

	IPTables, NFTables, KernelModules Advice // packages

	Runtimes    []string // packages whose upgrade restarts a container runtime or kubelet
	Rivals      []string // units of other container runtimes and kubelets
	TimeKeepers []string // units that synchronise the clock
	Reboot      string   // the file that marks a pending reboot after an update
	Trust       Advice   // the command that adds a CA to the system's
}

// Known returns the supported distributions. The last is the default for unsupported ones.
func Known() []Distro {
	debian := Distro{
		ID: "debian", Name: "Debian", Oldest: "12", Suites: map[string]string{"12": "bookworm"},
		Manager:  dpkg(),
		IPTables: "iptables", NFTables: "nftables",
		KernelModules: "linux-image-$(dpkg --print-architecture)",
		Runtimes: []string{"containerd", "containerd.io", "cri-o", "docker-ce", "docker.io", "kubelet",
			"moby-containerd", "moby-engine"},
		Rivals: []string{"docker.service", "crio.service", "k3s.service", "k3s-agent.service"},
		TimeKeepers: []string{"systemd-timesyncd.service", "chrony.service", "chronyd.service",
			"ntpsec.service", "ntp.service", "openntpd.service", "ptp4l.service"},
		Reboot: "/run/reboot-required",
		Trust:  "update-ca-certificates",
	}
	ubuntu := debian
	ubuntu.ID, ubuntu.Name, ubuntu.Oldest = "ubuntu", "Ubuntu", "22.04"
	ubuntu.Suites = map[string]string{"22.04": "jammy", "24.04": "noble"}
	ubuntu.KernelModules = "linux-modules-extra-$(uname -r)"
	return []Distro{ubuntu, debian}
}

// Find returns the distribution with an ID of os-release(5). For an unknown one it returns false,
// and Debian, whose names most others use.
func Find(id string) (Distro, bool) {
	list := Known()
	i := slices.IndexFunc(list, func(d Distro) bool { return d.ID == id })
	if i < 0 {
		return list[len(list)-1], false
	}
	return list[i], true
}

// Supported reports whether a node can run on a release, given its ID and VERSION_ID.
func Supported(id, version string) bool {
	d, ok := Find(id)
	var is, least [2]int // Debian has no minor version
	n, _ := fmt.Sscanf(version, "%d.%d", &is[0], &is[1])
	_, _ = fmt.Sscanf(d.Oldest, "%d.%d", &least[0], &least[1])
	return ok && n > 0 && slices.Compare(is[:], least[:]) >= 0
}

// AllSupported lists the supported releases.
func AllSupported() string {
	var list []string
	for _, d := range Known() {
		list = append(list, d.Name+" "+d.Oldest+" or later")
	}
	return strings.Join(list, " and ")
}
