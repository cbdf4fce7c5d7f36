// Package distro knows the names that Linux distributions give things: packages, units, paths, and
// the commands of their package managers. A distribution is one entry of Known. The package reads
// and runs nothing; what a node's own things and those of Kubernetes are called is in package node.
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

// Needrestart has the configuration of needrestart, which Debian's family runs after upgrades.
const Needrestart = "/etc/needrestart"

// Advice is a command for people, or a part of one: a constant, and no word of others.
type Advice string

// Distro is a distribution.
type Distro struct {
	ID, Name string            // ID is that of os-release(5)
	Oldest   string            // the VERSION_ID of the oldest release that is supported
	Suites   map[string]string // by VERSION_ID, of releases that Microsoft has a repository for
	Manager  Manager

	IPTables, NFTables, KernelModules Advice // packages

	Runtimes    []string // packages whose upgrade restarts a container runtime or kubelet
	Rivals      []string // units of other container runtimes and kubelets
	TimeKeepers []string // units that synchronise the clock
	Reboot      string   // the file that an update leaves which waits for a reboot
	Trust       Advice   // the command that adds a CA to the system's
}

// Known returns the distributions that are supported. The last stands for those that are not.
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

// Find returns the distribution with an ID of os-release(5). For one that is not known it returns
// false, and Debian, whose names most others have.
func Find(id string) (Distro, bool) {
	list := Known()
	i := slices.IndexFunc(list, func(d Distro) bool { return d.ID == id })
	if i < 0 {
		return list[len(list)-1], false
	}
	return list[i], true
}

// Supported reports whether a node can run on a release, by its ID and VERSION_ID.
func Supported(id, version string) bool {
	d, ok := Find(id)
	var is, least [2]int // Debian has no minor version
	n, _ := fmt.Sscanf(version, "%d.%d", &is[0], &is[1])
	_, _ = fmt.Sscanf(d.Oldest, "%d.%d", &least[0], &least[1])
	return ok && n > 0 && slices.Compare(is[:], least[:]) >= 0
}

// AllSupported names the releases that are supported.
func AllSupported() string {
	var list []string
	for _, d := range Known() {
		list = append(list, d.Name+" "+d.Oldest+" or later")
	}
	return strings.Join(list, " and ")
}
