package node

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// bridge is the interface to which pods are attached.
const bridge = "cni0"

// ConflistName is our network configuration. Runtimes read configurations in the order of names: a
// network that the cluster gets later (05-cilium.conflist, 10-...) takes precedence over ours.
const ConflistName = "99-aks-flex-node.conflist"

// AddressDir has a file for each address of a pod in our network, with its sandbox (host-local).
const AddressDir = "/var/lib/cni/networks/aks-flex-node"

// NetworkResult begins the name of the file with a pod's addresses in our network (libcni): its
// sandbox, "-" and its interface follow.
const NetworkResult = "/var/lib/cni/results/aks-flex-node-"

// plugins are the reference CNI plugins, as released (containernetworking/plugins).
var plugins = [...]string{
	"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan",
	"loopback", "macvlan", "portmap", "ptp", "sbr", "static", "tap", "tuning", "vlan", "vrf",
}

// atBoot removes the records of pods' addresses at each boot (tmpfiles.d(5)), when no pod has one.
// After a power failure some are empty: host-local never frees such an address, and containerd 1.7
// cannot end such a pod. The paths are the defaults of host-local and libcni.
const atBoot = header + `r! /var/lib/cni/networks/aks-flex-node/*
r! /var/lib/cni/results/*
`

func cni(p *part) {
	p.add(state.NewFile("/etc/tmpfiles.d/aks-flex-node.conf", 0o644, atBoot))
	for _, name := range plugins {
		p.add(p.bin(p.config.Paths.CNI.BinDir, "cni-plugins", name))
	}
}

// podNetwork renders a bridge on this node's own pod subnets, unless others configure a network.
func podNetwork(p *part) {
	file := path.Join(p.config.Paths.CNI.ConfDir, ConflistName)
	p.only = OwnNetwork
	everything := strconv.FormatBool(len(p.config.CNI.NonMasqueradeCIDRs) == 0)
	p.add(state.NewFile(file, 0o644, strings.Replace(conflist, "{{Masquerades}}", everything, 1)),
		state.Residue{Kind: state.Chains, Match: masqueradeChain})
	forwarding(p)
	masquerade(p)
}

// forwarding enables IPv6 forwarding if pods have such addresses; IPv4 is always forwarded
// (sysctls). If the kernel accepts router advertisements it has to continue, which is set first.
func forwarding(p *part) {
	var parameters []state.Sysctl
	for _, name := range p.facts.Advertised {
		parameters = append(parameters, state.Sysctl{Name: state.AcceptRA(name), Value: "2"})
	}
	parameters = append(parameters, state.Sysctl{Name: "net.ipv6.conf.all.forwarding", Value: "1"})
	p.only = OwnNetwork6
	p.sysctls(sysctlFile6, parameters)
}

// conflist is a CNI network configuration list (CNI specification 1.0.0). The Node may get another
// subnet (forceAddress). With ipMasq new pods have the rules of masquerade, even after a flush.
//
//go:embed cni.conflist
var conflist string

// podAddresses makes the host-local plugin give each pod an address from every subnet, with one
// range set each, and a default route per family; both are "" without subnets.
func podAddresses(cidrs []string) (ranges, routes string) {
	if len(cidrs) == 0 {
		return "", ""
	}
	var sets [][]object
	var ways []object
	for _, cidr := range cidrs {
		anywhere := "0.0.0.0/0"
		if isIPv6(cidr) {
			anywhere = "::/0"
		}
		sets = append(sets, []object{{"subnet": cidr}})
		ways = append(ways, object{"dst": anywhere})
	}
	const indent = "        " // in the configuration list
	return indented(sets, indent), indented(ways, indent)
}

// object is a JSON object; encoding/json sorts its keys, so its encoding is deterministic.
type object map[string]any

// indented encodes v as JSON; prefix starts every line after the first.
func indented(v any, prefix string) string {
	text, _ := json.MarshalIndent(v, prefix, "  ") // texts, numbers and lists can be encoded
	return string(text)
}

// masqueradeChain holds the rules for packets of pods that leave the cluster's network.
const masqueradeChain = "AKS-FLEX-NODE"

//go:embed masquerade.service
var masqueradeService string

// family describes IPv4 or IPv6.
type family struct {
	ipv6                              bool
	only                              state.Only
	suffix, iptables, multicast, pods string
}

var families = [...]family{
	{false, OwnNetwork4, "", "iptables", "224.0.0.0/4", thisPods4},
	{true, OwnNetwork6, "6", "ip6tables", "ff00::/8", thisPods6},
}

func isIPv6(cidr string) bool { return strings.Contains(cidr, ":") }

// masquerade gives packets of pods the machine's address if they leave the network in which pods'
// addresses are known. The bridge plugin exempts only this node's subnet, and does not add its
// rules again for running pods after a restart of nftables.
func masquerade(p *part) {
	for _, f := range families {
		unit := "aks-flex-node-masquerade" + f.suffix + ".service"
		file := OptDir + "/masquerade" + f.suffix + ".rules"
		p.only = f.only
		p.owe([]string{unit},
			state.NewFile(file, 0o644, masqueradeRules(f, p.config.CNI.NonMasqueradeCIDRs)))
		p.unit(unit, 0o644, fill(masqueradeService,
			"{{IPTables}}", f.iptables, "{{Chain}}", masqueradeChain, "{{File}}", file))
		p.run(unit)
	}
}

// masqueradeRules returns the input for iptables-restore --noflush, which empties a chain that it
// declares. The rules apply only to packets from this node's pods.
func masqueradeRules(f family, direct []string) string {
	var b strings.Builder
	rule := func(format string, args ...any) {
		fmt.Fprintf(&b, "-A "+masqueradeChain+" "+format+"\n", args...)
	}
	b.WriteString(header + "*nat\n:" + masqueradeChain + " - [0:0]\n")
	rule("! -s %s -j RETURN", f.pods)
	for _, cidr := range direct {
		if isIPv6(cidr) == f.ipv6 {
			rule("-d %s -j RETURN", cidr)
		}
	}
	rule("-m comment --comment own -d %s -j RETURN", f.pods)
	rule("-d %s -j RETURN", f.multicast)
	rule("-j MASQUERADE --random-fully")
	jump := "-A POSTROUTING -m comment --comment \"aks-flex-node: pods\" -j " + masqueradeChain
	b.WriteString(jump + "\nCOMMIT\n")
	return b.String()
}
