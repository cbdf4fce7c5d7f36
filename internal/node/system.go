package node

import (
	"strings"

	"github.com/Azure/AKSFlexNode/internal/distro"
	"github.com/Azure/AKSFlexNode/internal/state"
)

const (
	// systemd-sysctl reads the files in the order of their names, and the last one wins. The
	// owner's /etc/sysctl.conf is among them as 99-sysctl.conf.
	sysctlFile  = "/etc/sysctl.d/999-aks-flex-node.conf"
	sysctlFile6 = "/etc/sysctl.d/999-aks-flex-node-ipv6.conf"
)

// needrestart, which Ubuntu runs after each upgrade, must not restart the node: pods would notice.
// It reads Perl. Only one key is set, so that the distribution's own list remains.
const needrestart = header + `$nrconf{override_rc}{qr(^(containerd|kubelet)\.service$)} = 0;
`

// Modules returns the kernel modules of a container host: overlay for image layers, br_netfilter so
// that bridged pod traffic passes iptables.
func Modules() []string { return []string{"overlay", "br_netfilter"} }

// sysctls are the kernel parameters of a node. Those of vm and kernel are required by kubelet's
// protectKernelDefaults (pkg/kubelet/cm, setupKernelTunables); else kubelet does not start.
var sysctls = [...]state.Sysctl{
	{Name: "net.bridge.bridge-nf-call-iptables", Value: "1"},
	{Name: "net.bridge.bridge-nf-call-ip6tables", Value: "1"},
	{Name: "net.ipv4.ip_forward", Value: "1"},
	{Name: "vm.overcommit_memory", Value: "1"},
	{Name: "vm.panic_on_oom", Value: "0"},
	{Name: "kernel.panic", Value: "10"},
	{Name: "kernel.panic_on_oops", Value: "1"},
	{Name: "kernel.keys.root_maxkeys", Value: "1000000"},
	{Name: "kernel.keys.root_maxbytes", Value: "25000000"},
}

// system configures the kernel, now and at every boot, and opens firewalls. It turns swap off by
// masking the units that would turn it on again, and leaves the owner's /etc/fstab alone.
func system(p *part) {
	p.add(
		state.NewFile(distro.Needrestart+"/conf.d/aks-flex-node.conf", 0o644, needrestart),
		state.NewFile("/etc/modules-load.d/aks-flex-node.conf", 0o644,
			header+strings.Join(Modules(), "\n")+"\n"),
	)
	for _, name := range Modules() {
		p.add(state.Module{Name: name, Loaded: true})
	}
	p.sysctls(sysctlFile, sysctls[:])
	if !p.config.Node.Kubelet.KeepsSwap() {
		for _, unit := range p.facts.SwapUnits {
			p.add(state.Unit{Name: unit, Enabled: state.Masked})
		}
		p.add(state.Swap{})
	}
	for _, f := range p.facts.Firewalls { // which facts have only if they are to be opened
		for _, item := range Openings(f) {
			p.put(item)
		}
	}
	metadata(p)
}

// sysctls sets kernel parameters, now and, by a file, at every boot.
func (p *part) sysctls(file string, parameters []state.Sysctl) {
	text := header
	for _, s := range parameters {
		text += s.Name + " = " + s.Value + "\n"
	}
	p.add(state.NewFile(file, 0o644, text))
	for _, s := range parameters {
		p.add(s)
	}
}

// header is the first line of our files that people may read.
const header = "# Written by aks-flex-node; changes are drift. " +
	"Undone by `aks-flex-node unbootstrap`.\n"
