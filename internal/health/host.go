package health

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// oldest are the oldest versions of the systems that we know, by their ID in os-release(5).
func oldest(id string) (major, minor int, ok bool) {
	switch id {
	case "ubuntu":
		return 22, 4, true
	case "debian":
		return 12, 0, true
	}
	return 0, 0, false
}

func systemSupported(e Evidence) Condition {
	m := e.Machine
	switch {
	case m == nil:
		return notAsked()
	case m.Arch != "amd64" && m.Arch != "arm64":
		return fails(OwnerMachine, "UnsupportedArchitecture", fmt.Sprintf("cannot use this machine: "+
			"its architecture is %s; amd64 and arm64 are supported", m.Arch))
	case !knownSystem(m.OSID, m.OSVersion):
		return fails(OwnerMachine, "UnsupportedSystem", fmt.Sprintf("cannot use this system, %s: "+
			"Ubuntu 22.04 or later and Debian 12 or later are supported", m.OSName))
	case !m.Systemd:
		return fails(OwnerMachine, "NoSystemd",
			"cannot use this machine: systemd is not running as its init")
	}
	return holds()
}

func knownSystem(id, version string) bool {
	major, minor, ok := oldest(id)
	head, tail, _ := strings.Cut(version, ".")
	m, err := strconv.Atoi(head)
	n, _ := strconv.Atoi(tail) // Debian has no minor version
	return ok && err == nil && (m > major || m == major && n >= minor)
}

func rootPrivileges(e Evidence) Condition {
	switch {
	case e.Machine.UID != 0:
		return fails(OwnerMachine, "NotRoot", "cannot run without root: start it with sudo")
	}
	return holds()
}

func toolsInstalled(e Evidence) Condition {
	switch {
	case !e.Machine.IPTables:
		return fails(OwnerMachine, "IPTablesMissing", "iptables is not installed, and the pod "+
			"network needs it: apt-get install iptables")
	case !e.Machine.NFTables && !e.Wanted.MetadataAllowed:
		return fails(OwnerMachine, "NFTablesMissing", "nft is not installed, which keeps pods from "+
			"the metadata service of this machine: apt-get install nftables")
	}
	return holds()
}

// The free space in bytes that a node needs: at first for its artifacts and the first images, later
// for those of an update.
const (
	leastFree          = 2 << 30
	leastFreeInstalled = 512 << 20
)

func diskSpace(e Evidence) Condition {
	least := int64(leastFree)
	if e.Machine.Installed {
		least = leastFreeInstalled
	}
	var full []string
	for _, dir := range slices.Sorted(maps.Keys(e.Machine.Free)) {
		if free := e.Machine.Free[dir]; free < least {
			full = append(full, fmt.Sprintf("only %d MB are free below %s", free>>20, dir))
		}
	}
	if len(full) > 0 {
		return fails(OwnerMachine, "DiskFull", fmt.Sprintf("%s; a node needs at least %d MB: free "+
			"space, or mount a larger file system there", strings.Join(full, "; "), least>>20))
	}
	return holds()
}

func programTrusted(e Evidence) Condition {
	switch {
	case !e.Trust.Asked:
		return notAsked()
	case e.Trust.Err != nil:
		return fails(OwnerMachine, "Untrusted", oneLine(e.Trust.Err))
	}
	return holds()
}

// runtimeOwned: two container runtimes or kubelets on one machine break each other.
func runtimeOwned(e Evidence) Condition {
	var foreign []string
	for _, u := range e.Machine.ForeignUnits {
		foreign = append(foreign, fmt.Sprintf("%s (%s)", u.Name, u.Path))
	}
	if len(foreign) > 0 {
		return fails(OwnerMachine, "ForeignRuntime", fmt.Sprintf("somebody else has installed %s; "+
			"remove what it belongs to, or use another machine", strings.Join(foreign, ", ")))
	}
	return holds()
}

func directoriesFree(e Evidence) Condition {
	var used []string
	for _, dir := range e.Machine.ForeignDirectories {
		used = append(used, path.Clean(dir))
	}
	if len(used) > 0 {
		return fails(OwnerMachine, "ForeignState", fmt.Sprintf("%s is not empty: it holds the state "+
			"of an earlier node; move it away or remove it", strings.Join(used, ", ")))
	}
	return holds()
}

// nodeAddressPresent: kubelet takes an address that the machine does not have without a word, and
// nobody reaches the node there.
func nodeAddressPresent(e Evidence) Condition {
	if e.Wanted.NodeIP == "" {
		return holds() // kubelet chooses one of the machine's
	}
	if e.Machine == nil {
		return notAsked()
	}
	for text := range strings.SplitSeq(e.Wanted.NodeIP, ",") {
		if !present(strings.TrimSpace(text), e.Machine.Addresses) {
			return fails(OwnerConfiguration, "AddressMissing", fmt.Sprintf("node.kubelet.nodeIP is "+
				"%s, and this machine does not have that address; its addresses are %s",
				text, strings.Join(e.Machine.Addresses, ", ")))
		}
	}
	return holds()
}

// present tells whether an address is one of the machine's. The unspecified address leaves the
// choice within a family to kubelet.
func present(text string, addresses []string) bool {
	wanted, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	return wanted.IsUnspecified() || slices.ContainsFunc(addresses, func(a string) bool {
		is, err := netip.ParseAddr(a)
		return err == nil && is.WithZone("").Unmap() == wanted.Unmap()
	})
}

// podSubnetsFit: pods do not start where they are to have addresses of IPv6 and the machine has
// none; and what the configuration says of a family that pods do not have would have no effect.
func podSubnetsFit(e Evidence) Condition {
	var six, four []string
	for _, cidr := range e.Machine.PodCIDRs {
		if strings.Contains(cidr, ":") {
			six = append(six, cidr)
		} else {
			four = append(four, cidr)
		}
	}
	if len(six) > 0 && e.Machine.NoIPv6 {
		return fails(OwnerMachine, "IPv6Off", fmt.Sprintf("cannot give pods addresses of %s: this "+
			"machine has IPv6 switched off; set net.ipv6.conf.all.disable_ipv6 and "+
			"net.ipv6.conf.default.disable_ipv6 to 0 (and boot without ipv6.disable=1), or set "+
			"cni.podCIDR to a subnet of IPv4", six[0]))
	}
	for _, cidr := range e.Wanted.Unmasked {
		family, has := "IPv4", four
		if strings.Contains(cidr, ":") {
			family, has = "IPv6", six
		}
		if len(e.Machine.PodCIDRs) > 0 && len(has) == 0 {
			return fails(OwnerCluster, "FamilyMissing", fmt.Sprintf("cannot have pods reach %s of "+
				"cni.nonMasqueradeCIDRs with their own address: the cluster has allocated %s to this "+
				"Node, and no subnet of %s; make the cluster dual-stack, or remove that network",
				cidr, strings.Join(e.Machine.PodCIDRs, " and "), family))
		}
	}
	return holds()
}

// oneLine is an error's text in one line.
func oneLine(err error) string { return joined(err.Error()) }

// joined puts the lines of a text into one.
func joined(text string) string {
	return strings.NewReplacer(":\n", ": ", "\n", "; ").Replace(text)
}
