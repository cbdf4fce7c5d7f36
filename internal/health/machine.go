package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/distro"
)

func systemSupported(e Evidence) Condition {
	m := e.Machine
	switch {
	case m.Arch != "amd64" && m.Arch != "arm64":
		return fails(OwnerMachine, "UnsupportedArchitecture", fmt.Sprintf("cannot use this machine: "+
			"its architecture is %s; amd64 and arm64 are supported", m.Arch))
	case !distro.Supported(m.OSID, m.OSVersion):
		return fails(OwnerMachine, "UnsupportedSystem", fmt.Sprintf("cannot use this system, %s: %s "+
			"are supported", m.OSName, distro.AllSupported()))
	case !m.Systemd:
		return fails(OwnerMachine, "NoSystemd",
			"cannot use this machine: systemd is not running as its init")
	}
	return holds()
}

func rootPrivileges(e Evidence) Condition {
	return when(e.Machine.UID != 0, OwnerMachine, "NotRoot",
		"cannot run without root: start it with sudo")
}

func toolsInstalled(e Evidence) Condition {
	d := e.distro()
	if !e.Machine.IPTables {
		return fails(OwnerMachine, "IPTablesMissing", "iptables is not installed, and the pod "+
			"network needs it: "+string(d.Manager.Fetch+" "+d.IPTables))
	}
	return when(!e.Machine.NFTables, OwnerMachine, "NFTablesMissing", "nft is not installed, and the "+
		"pod network needs it: "+string(d.Manager.Fetch+" "+d.NFTables))
}

// The free bytes that a node needs: first for artifacts and images, later for an update.
const leastFree, leastFreeInstalled = 2 << 30, 512 << 20

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
	return when(len(full) > 0, OwnerMachine, "DiskFull", fmt.Sprintf("%s; a node needs at least %d "+
		"MB: free space, or mount a larger file system there", strings.Join(full, "; "), least>>20))
}

func programTrusted(e Evidence) Condition {
	c := tried(e.Trust, OwnerMachine, "Untrusted", "%s")
	if untrusted, ok := errors.AsType[*config.TrustError](e.Trust.Err); ok {
		c = fails(OwnerMachine, "Untrusted", untrusted.Why)
		c.Message += "; run `" + untrusted.Command + "`" // our own command, with a quoted path
		c.Remedies = []string{untrusted.Command}
	}
	return c
}

const afterPurge = "; on a node, `aks-flex-node drift --repair` then starts containerd again"

// runtimeOwned fails if there is another container runtime or kubelet: they break each other. The
// network of one has the same addresses on each machine.
func runtimeOwned(e Evidence) Condition {
	var foreign []string
	for _, u := range e.Machine.Units {
		foreign = append(foreign, fmt.Sprintf("%s (%s)", u.Name, u.Path))
	}
	if file := e.Machine.EngineNetwork; file != "" && len(foreign) == 0 {
		return fails(OwnerMachine, "ForeignNetwork", "the network for pods is "+file+", which belongs "+
			"to another container engine: each machine has the same addresses").run("run `mv %s /root/` "+
			"and `aks-flex-node bootstrap`, and recreate pods that have such addresses", file)
	}
	return lacking(foreign, "ForeignRuntime", "another program has installed %s; purge the package "+
		"it belongs to ("+string(e.distro().Manager.PurgeAll)+"), or use another machine"+afterPurge)
}

func directoriesFree(e Evidence) Condition {
	return lacking(e.Machine.ForeignDirectories, "ForeignState", "%s is not empty: it holds the "+
		"state of an earlier node; move it away or remove it")
}

// nodeAddressPresent fails if the machine lacks node.kubelet.nodeIP, which kubelet announces.
func nodeAddressPresent(e Evidence) Condition {
	if e.Wanted.Node.Kubelet.NodeIP == "" {
		return holds() // kubelet chooses one itself
	}
	if e.Machine == nil {
		return notAsked()
	}
	for text := range strings.SplitSeq(e.Wanted.Node.Kubelet.NodeIP, ",") {
		if !present(strings.TrimSpace(text), e.Machine.Addresses) {
			return fails(OwnerConfiguration, "AddressMissing", fmt.Sprintf("node.kubelet.nodeIP is "+
				"%s, and this machine does not have that address; its addresses are %s",
				text, strings.Join(e.Machine.Addresses, ", ")))
		}
	}
	return holds()
}

// present reports whether an address is one of addresses; the unspecified address always is.
func present(text string, addresses []string) bool {
	wanted, _ := netip.ParseAddr(text) // no address equals the zero one
	same := func(a netip.Addr) bool { return a == wanted.Unmap() }
	return wanted.IsUnspecified() || indexOf(addresses, same) >= 0
}

// indexOf returns the index of the first address that fits, -1 for none.
func indexOf(addresses []string, fits func(netip.Addr) bool) int {
	return slices.IndexFunc(addresses, func(a string) bool {
		is, err := netip.ParseAddr(a)
		return err == nil && fits(is.WithZone("").Unmap())
	})
}

// podSubnetsFit checks that the address families of pods and of their configuration match, and that
// no address that the machine has or needs is in a pod subnet: the bridge would take it over.
func podSubnetsFit(e Evidence) Condition {
	own, needed := e.Machine.PodCIDRs, slices.Concat(e.Machine.Addresses, e.Machine.Resolvers)
	for _, text := range []string{e.Wanted.Node.Kubelet.ServerURL, e.Machine.Server} {
		if server, err := url.Parse(text); err == nil {
			needed = append(needed, server.Hostname())
		}
	}
	for _, cidr := range own {
		subnet, _ := netip.ParsePrefix(cidr)
		if i := indexOf(needed, subnet.Contains); i >= 0 {
			return fails(OwnerConfiguration, "OverlapsMachine", fmt.Sprintf("the pod subnet %s contains "+
				"%s, an address of this machine, of its DNS server or of the API server; set another "+
				"cni.podCIDR, with agent.upgradePolicy.drain: never while the API server does not answer",
				cidr, needed[i]))
		}
	}
	isSix := func(cidr string) bool { return strings.Contains(cidr, ":") }
	if six := slices.IndexFunc(own, isSix); six >= 0 && e.Machine.NoIPv6 {
		return fails(OwnerMachine, "IPv6Off", fmt.Sprintf("cannot assign pods addresses of %s: IPv6 "+
			"is disabled on this machine; set net.ipv6.conf.all.disable_ipv6 and "+
			"net.ipv6.conf.default.disable_ipv6 to 0 (and boot without ipv6.disable=1), or set "+
			"cni.podCIDR to a subnet of IPv4", own[six]))
	}
	for _, cidr := range e.Wanted.CNI.NonMasqueradeCIDRs {
		family := map[bool]string{false: "IPv4", true: "IPv6"}[isSix(cidr)]
		has := slices.ContainsFunc(own, func(o string) bool { return isSix(o) == isSix(cidr) })
		if e.Wanted.CNI.PodCIDR == "" && len(own) > 0 && !has {
			return fails(OwnerCluster, "FamilyMissing", fmt.Sprintf("pods cannot reach %s of "+
				"cni.nonMasqueradeCIDRs with their own address: the cluster has allocated %s to this "+
				"Node, and no subnet of %s; make the cluster dual-stack, or remove that network",
				cidr, strings.Join(own, " and "), family))
		}
	}
	return holds()
}

func oneLine(err error) string { return joined(err.Error()) }

func joined(text string) string {
	return strings.NewReplacer(":\n", ": ", "\n", "; ").Replace(text)
}

// firewallOpen fails if a firewall drops packets by default: pods of a Ready node reach nothing.
func firewallOpen(e Evidence) Condition {
	found := e.Machine.Barriers
	switch {
	case e.Wanted.Network.Firewall == config.FirewallIgnore, found.OK() && len(found.Value) == 0:
		return holds()
	case !found.OK():
		return found.missing()
	}
	var names, commands []string
	for _, f := range found.Value {
		names = append(names, f.Name+" ("+strings.Join(f.Closed, "; ")+")")
		commands = append(commands, f.Commands...)
	}
	message := "a firewall of this machine blocks traffic that a node needs: " +
		strings.Join(names, ", ")
	if strings.Contains(message, " 10250") {
		switch {
		case e.Machine.Tunnel:
			message += "; logs and exec use the cluster's tunnel (konnectivity-agent on this node)"
		case e.Machine.Installed:
			message += "; logs and exec need port 10250: no tunnel of the cluster " +
				"(konnectivity-agent) ends on this node"
		}
	}
	if e.Wanted.Network.Firewall == config.FirewallManage {
		return fails(OwnerMachine, "FirewallBlocks", message,
			"open it again with `aks-flex-node bootstrap`")
	}
	return fails(OwnerMachine, "FirewallBlocks", message+"; set network.firewall to manage, or to "+
		"ignore if other rules allow it, or run: "+strings.Join(commands, "; "))
}

// Metadata is the result of a connection to the metadata service from a pod's network.
type Metadata struct {
	Guarded          bool // the rules which reject it are loaded
	Tried            bool // false if no pod has a network of its own
	Reached, Refused bool // how the connection ended; both are false after a timeout
}

// metadataGuarded fails if pods reach the metadata service, and so the machine's identity.
func metadataGuarded(e Evidence) Condition {
	m := e.Metadata
	switch {
	case e.Wanted.Network.Metadata == config.MetadataAllow:
		return unknown("Allowed", "network.metadata is allow: pods may reach the metadata service of "+
			"this machine")
	case !m.OK():
		return m.missing()
	case m.Value.Reached:
		return fails(OwnerMachine, "MetadataReachable", "a pod can connect to the metadata service at "+
			"169.254.169.254 and use the identity of this machine: the rules are not loaded, "+
			"or the pod network bypasses netfilter", "`aks-flex-node drift --repair` loads them; if the "+
			"pod network bypasses netfilter, a network policy is needed")
	case !m.Value.Guarded:
		return fails(OwnerMachine, "RulesNotLoaded", "the rules that block pods from the metadata "+
			"service are not loaded", "`aks-flex-node drift --repair` loads them")
	case !m.Value.Tried:
		return unknown(notChecked, "the rules are loaded, but not tested: no pod with its own network "+
			"namespace runs on this node")
	case m.Value.Refused:
		return holds()
	}
	return unknown("NotAnswered", "the rules are loaded; a connection from a pod was neither "+
		"refused nor answered")
}

// leastMemory leaves no room for a pod. The kernel of a 512 MB machine reports less than 512 MB.
const leastMemory = 450 << 20

// The documented requirements: 2 GB of memory, of which the kernel reports up to a tenth less, and
// 25 GB of free disk before the node is installed.
const advisedMemory, advisedFree = 2_000_000_000 / 10 * 9, 25_000_000_000

const imagesDir = "/var/lib" // holds images and the data of pods

func memorySize(e Evidence) Condition {
	m := e.Machine
	if m.MemoryBytes == 0 {
		return notAsked()
	}
	return when(m.MemoryBytes < leastMemory, OwnerMachine, "MemoryTooSmall", fmt.Sprintf("this "+
		"machine has %d MB of memory; a node needs at least %d MB, and 2 GB to be useful: use a "+
		"larger machine", m.MemoryBytes>>20, leastMemory>>20))
}

// sizeAdvised warns of a small machine, which works with few pods and small images.
func sizeAdvised(e Evidence) Condition {
	m := e.Machine
	if m.MemoryBytes == 0 {
		return notAsked()
	}
	var less []string
	if m.MemoryBytes < advisedMemory {
		less = append(less, fmt.Sprintf("%d MB of memory (2 GB recommended)", m.MemoryBytes>>20))
	}
	free, known := m.Free[imagesDir]
	if known && !m.Installed && free < advisedFree { // an installed node has used some of it
		less = append(less, fmt.Sprintf("%d GB free below %s (25 GB recommended)",
			free/1_000_000_000, imagesDir))
	}
	return when(len(less) > 0, OwnerMachine, "BelowRecommendedSize", "this machine has only "+
		strings.Join(less, " and ")+": it can be a node with few pods and small images")
}

// The approximate usage of systemd, containerd and kubelet themselves. kubeReserved is meant for
// it, so the larger of the two counts.
const (
	systemMillis = 100
	systemMemory = 256 << 20
)

// kubelet's default eviction thresholds (KubeletConfiguration, evictionHard).
const (
	defaultMemoryEviction = "100Mi"
	defaultDiskEviction   = "10%"
)

const minPIDs = 1000 // the process IDs that pods need at least

// reservationsFit fails if kubeReserved and evictionHard exceed the machine: kubelet exits then, or
// no pod starts for lack of process IDs.
func reservationsFit(e Evidence) Condition {
	m, w := e.Machine, e.Wanted
	if m.CPUs == 0 || m.MemoryBytes == 0 {
		return notAsked()
	}
	reserved, eviction := w.Node.Reserved(m.CPUs, m.MemoryBytes), w.Node.Kubelet.EvictionHard
	var wrong error
	amount := func(text string, whole int64) float64 {
		is, err := amountOf(text, whole)
		wrong = cmp.Or(wrong, err)
		return is
	}
	cpu := max(amount(reserved["cpu"], 0)*1000, systemMillis)
	memory := max(amount(reserved["memory"], 0), systemMemory) +
		amount(cmp.Or(eviction["memory.available"], defaultMemoryEviction), m.MemoryBytes)
	disk := amount(reserved["ephemeral-storage"], 0) +
		amount(cmp.Or(eviction["nodefs.available"], defaultDiskEviction), m.DiskBytes)
	pids := amount(reserved["pid"], 0)
	if wrong != nil {
		return fails(OwnerConfiguration, "InvalidQuantity", "node.kubelet.kubeReserved or "+
			"evictionHard: "+wrong.Error())
	}
	var short []string
	if cpu >= float64(m.CPUs) {
		short = append(short, fmt.Sprintf("cpu: %.0fm of %dm", cpu, m.CPUs))
	}
	if memory >= float64(m.MemoryBytes) {
		short = append(short, fmt.Sprintf("memory: %.0f of %d MB", memory/(1<<20), m.MemoryBytes>>20))
	}
	if m.DiskBytes > 0 && disk >= float64(m.DiskBytes) {
		short = append(short, fmt.Sprintf("disk: %.0f of %d MB", disk/(1<<20), m.DiskBytes>>20))
	}
	if m.MaxPIDs > 0 && pids+minPIDs > float64(m.MaxPIDs) {
		short = append(short, fmt.Sprintf("process IDs: %.0f of %d", pids, m.MaxPIDs))
	}
	return when(len(short) > 0, OwnerConfiguration, "NothingAllocatable", fmt.Sprintf("nothing "+
		"would be left for pods: the system, node.kubelet.kubeReserved and evictionHard need %s, and "+
		"kubelet or its pods do not start; lower kubeReserved or evictionHard",
		strings.Join(short, ", ")))
}

// amountOf parses a quantity, or a percentage of the whole; "" is 0.
func amountOf(text string, whole int64) (float64, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok && text != "100%" {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read the percentage %q: %w", text, err)
		}
		return p / 100 * float64(whole), nil
	}
	// kubelet ignores a threshold of 100%.
	q, err := resource.ParseQuantity(cmp.Or(strings.TrimSuffix(text, "100%"), "0"))
	if err != nil {
		return 0, fmt.Errorf("cannot read the quantity %q: %w", text, err)
	}
	return q.AsApproximateFloat64(), nil
}

// swapLimited fails if LimitedSwap cannot work: with cgroup v1 kubelet does not start, and without
// the kernel's accounting no pod can use swap.
func swapLimited(e Evidence) Condition {
	return when(e.Wanted.Node.Kubelet.KeepsSwap() && !e.Machine.SwapLimits, OwnerConfiguration,
		"NoSwapLimits", "node.kubelet.swap is LimitedSwap, and the kernel cannot limit the swap of "+
			"containers: it uses cgroup v1, or was booted with swapaccount=0", "set it to off, or boot "+
			"with systemd.unified_cgroup_hierarchy=1 and without swapaccount=0")
}

// nodeObserved fails if observing failed. Conditions that depend on it are Unknown, not unhealthy.
func nodeObserved(e Evidence) Condition {
	return tried(e.Observed, OwnerMachine, "NotObserved", "cannot read the complete state of this "+
		"machine: %s", "check that `systemctl status` answers, and `dmesg` for disk errors")
}

// Unchecked returns the last conditions after a failed check, with NodeObserved set to False.
func Unchecked(last []Condition, why error, at time.Time) []Condition {
	c := fails(OwnerMachine, "CheckFailed", Clip("cannot check this node: "+oneLine(why),
		longestMessage), "see `journalctl -u aks-flex-node-agent`")
	c.Type, c.Since = NodeObserved, at.UTC().Truncate(time.Second)
	after := slices.Clone(last)
	for i := range after {
		if after[i].Type == NodeObserved {
			after[i] = c
		}
	}
	return Merge(last, after)
}
