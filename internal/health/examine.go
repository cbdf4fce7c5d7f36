package health

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// tried judges an answer that only succeeds or fails.
func tried(
	e Evidence, answer func(*Examined) Answer[struct{}], owner, reason, cure string,
) Condition {
	if e.Examined == nil || !answer(e.Examined).Asked {
		return notAsked()
	}
	if err := answer(e.Examined).Err; err != nil {
		return fails(owner, reason, oneLine(err)+cure)
	}
	return holds()
}

func configurationValid(e Evidence) Condition {
	return tried(e, func(x *Examined) Answer[struct{}] { return x.Configuration },
		OwnerConfiguration, "Invalid", "; correct it, and check it with `aks-flex-node config validate`")
}

// stateReadable: without its records the agent can neither keep the node nor give the machine back.
func stateReadable(e Evidence) Condition {
	return tried(e, func(x *Examined) Answer[struct{}] { return x.State },
		OwnerMachine, "Damaged", "; what is below /var/lib/aks-flex-node was changed by somebody else: "+
			"restore it from a backup, or see `aks-flex-node unbootstrap --help` (--force)")
}

// lacking judges a list of what is missing.
func lacking(e Evidence, list func(*Examined) []string, reason, what, cure string) Condition {
	if e.Examined == nil {
		return notAsked()
	}
	if found := list(e.Examined); len(found) > 0 {
		return fails(OwnerMachine, reason, what+": "+strings.Join(found, ", ")+cure)
	}
	return holds()
}

func processorSupported(e Evidence) Condition {
	return lacking(e, func(x *Examined) []string { return x.MissingCPU }, "TooOld",
		"the processor lacks features of x86-64-v2, which images need",
		"; on a virtual machine choose a newer CPU model, such as the host's; `lscpu` shows it")
}

func controlGroups(e Evidence) Condition {
	switch {
	case e.Examined == nil:
		return notAsked()
	case e.Examined.CgroupVersion == 1 && !e.Examined.CgroupV1Allowed && refusesCgroupV1(e):
		return fails(OwnerMachine, "CgroupV1", "this machine has control groups of version 1, which "+
			"kubelet refuses from 1.35 on; boot with systemd.unified_cgroup_hierarchy=1: add it to "+
			"GRUB_CMDLINE_LINUX in /etc/default/grub, and run `update-grub` and `reboot`")
	}
	return lacking(e, func(x *Examined) []string { return x.MissingControllers }, "ControllersMissing",
		"the kernel has no control group controller", "; boot without cgroup_disable, or with a "+
			"kernel that has it; `cat /sys/fs/cgroup/cgroup.controllers` lists those that there are")
}

// refusesCgroupV1 tells whether kubelet refuses version 1, as it does from Kubernetes 1.35 on. A
// version that was left open is the cluster's, which may be any.
func refusesCgroupV1(e Evidence) bool {
	if e.Kubelet.OK() && e.Kubelet.Value.Active {
		return false
	}
	v, ok := release.Parse(e.Wanted.Kubernetes)
	return !ok || v.Major > 1 || v.Minor >= 35
}

func kernelModules(e Evidence) Condition {
	return lacking(e, func(x *Examined) []string { return x.MissingModules }, "ModulesMissing",
		"the kernel lacks modules that a node needs", "; install the package that has them "+
			"(`apt-get install linux-modules-extra-$(uname -r)`), or another kernel")
}

func fileSystemsWritable(e Evidence) Condition {
	return lacking(e, func(x *Examined) []string { return x.ReadOnly }, "ReadOnly",
		"cannot write below", "; the file system is mounted read-only, often after an error of its "+
			"disk: see `dmesg`, check it with fsck, and mount it again")
}

// mostInodes is the part of the inodes that may be in use, in percent: kubelet evicts at 95.
const mostInodes = 94

func inodesFree(e Evidence) Condition {
	return lacking(e, func(x *Examined) []string {
		var full []string
		for _, dir := range slices.Sorted(maps.Keys(x.InodesUsed)) {
			if used := x.InodesUsed[dir]; used > mostInodes {
				full = append(full, fmt.Sprintf("%s (%d %% of the inodes in use)", dir, used))
			}
		}
		return full
	}, "InodesFull", "there is no room for more files below", "; find what has so many with "+
		"`du --inodes -xd2 /var | sort -n`, and remove it")
}

func swapOff(e Evidence) Condition {
	return lacking(e, func(x *Examined) []string { return x.Swaps }, "SwapOn",
		"swap is on, and kubelet refuses to start with it", "; turn it off with "+
			"`aks-flex-node drift --repair`, and find out what turned it on")
}

func portsFree(e Evidence) Condition {
	return lacking(e, func(x *Examined) []string {
		var taken []string
		for _, port := range x.Taken {
			taken = append(taken, strconv.Itoa(port))
		}
		return taken
	}, "PortInUse", "another program uses ports of kubelet", "; find it with `ss -ltnp`, and stop it")
}

func rebootNotPending(e Evidence) Condition {
	if e.Examined == nil {
		return notAsked()
	}
	if e.Examined.RebootRequired {
		return fails(OwnerMachine, "RebootRequired", "an update of the system waits for a reboot "+
			"(/run/reboot-required); drain the node, and run `reboot`")
	}
	return holds()
}

// reached tells whether the API server answers.
func (e Evidence) reached() bool {
	return e.Probe.OK() || e.Node.OK() || kube.NodeMissing(e.Node.Err)
}

// defaultRoute: a machine whose servers are all on its own network needs none.
func defaultRoute(e Evidence) Condition {
	if e.Examined == nil || e.Examined.Routed == nil {
		return notAsked()
	}
	if !*e.Examined.Routed && !e.reached() {
		return fails(OwnerNetwork, "NoRoute", "this machine has no default route, and reaches no "+
			"other network; see `ip route`, and the state of the network (`networkctl`)")
	}
	return holds()
}

func resolverConfigured(e Evidence) Condition {
	if e.Examined == nil || e.Examined.Resolvers == nil {
		return notAsked()
	}
	if len(e.Examined.Resolvers) == 0 {
		return fails(OwnerMachine, "NoServers", "this machine has no DNS server, and pods will have "+
			"none either; configure one; `resolvectl status` shows them")
	}
	return holds()
}

// clusterCAValid: the CA that the configuration gives must be valid now.
func clusterCAValid(e Evidence) Condition {
	if e.Examined == nil || e.Examined.CA == "" {
		return notAsked()
	}
	var ended string
	for rest := []byte(e.Examined.CA); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // the configuration was checked
		}
		if e.Now.Before(ca.NotAfter) && !e.Now.Before(ca.NotBefore) {
			return holds()
		}
		ended = fmt.Sprintf("%s (%s to %s)", ca.Subject, ca.NotBefore.UTC().Format(time.DateOnly),
			ca.NotAfter.UTC().Format(time.DateOnly))
	}
	return fails(OwnerCluster, "NotValidNow", "no certificate of the cluster's CA is valid now: "+
		ended+"; ask the cluster's operator for a configuration with the present one")
}

// kubeletCertificate: kubelet asks for the next one when 10 to 30 % of the time is left.
func kubeletCertificate(e Evidence) Condition {
	switch {
	case e.Examined == nil:
		return notAsked()
	case !e.Examined.Client.OK():
		return e.Examined.Client.missing()
	}
	v := e.Examined.Client.Value
	const renew = "; ask the cluster's operator for a new bootstrap token or configuration URL, and " +
		"run `aks-flex-node bootstrap`"
	switch {
	case !e.Now.Before(v.To):
		return fails(OwnerCluster, "Expired", "kubelet's client certificate has expired at "+
			v.To.UTC().Format(time.RFC3339)+", and the API server no longer knows this node"+renew)
	case e.Now.Before(v.From):
		return fails(OwnerMachine, "NotYetValid", "kubelet's client certificate is valid only from "+
			v.From.UTC().Format(time.RFC3339)+" on: this machine's clock is wrong; see `timedatectl`")
	case v.To.Sub(e.Now) < v.To.Sub(v.From)/20:
		return fails(OwnerCluster, "NotRenewed", "kubelet's client certificate ends at "+
			v.To.UTC().Format(time.RFC3339)+", and kubelet has not been given a new one: nobody "+
			"approves its requests; see `kubectl get csr`")
	}
	return holds()
}
