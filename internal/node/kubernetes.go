package node

import (
	_ "embed"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// NPDUnit is the unit of the node-problem-detector.
const NPDUnit = "node-problem-detector.service"

const npdConfDir = "/etc/node-problem-detector"

//go:embed node-problem-detector.service
var npdService string

func kubernetes(p *part) {
	p.owe([]string{KubeletUnit}, p.bin(binDir, "kubelet", "kubelet"))
}

// tools installs kubectl, kubeadm and the node-problem-detector with its kernel monitor, which uses
// kubelet's credential for the API server. They are not needed for the join, so they are installed
// once the Node is Ready and take no bandwidth before.
func tools(p *part) {
	p.add(p.bin(binDir, "kubectl", "kubectl"), p.bin(binDir, "kubeadm", "kubeadm"))
	p.owe([]string{NPDUnit},
		p.bin(binDir, "node-problem-detector", "bin/node-problem-detector"),
		p.bin(npdConfDir, "node-problem-detector", "config/kernel-monitor.json"))
	p.unit(NPDUnit, 0o644, fill(npdService,
		"{{Server}}", thisServer,
		"{{Kubeconfig}}", p.kubeconfig(),
		"{{NodeName}}", p.config.Agent.NodeName,
		"{{Credential}}", p.loadCredential(),
		"{{Rules}}", npdConfDir+"/kernel-monitor.json"))
	p.proxyDropIn(NPDUnit)
}

// start starts the services. It first claims what they leave behind, so that the undo, in reverse
// order, stops the services and then removes that.
func start(p *part) {
	p.add(
		state.Residue{Kind: state.Interfaces, Match: bridge},
		state.Residue{Kind: state.Chains, Match: "KUBE-"},
		// kube-proxy's iptables mode turns it on, and drops foreign packets to 127.0.0.1 in its chains.
		state.Residue{Kind: state.Settings, Match: "net.ipv4.conf.all.route_localnet"},
		state.Residue{Kind: state.Tables, Match: "kube-proxy"},
		state.Residue{Kind: state.Chains, Match: "CNI-"},
		state.Residue{Kind: state.Mounts, Match: "/run/netns/cni-"},
		state.Residue{Kind: state.Processes, Match: OptDir},
		state.Residue{Kind: state.Cgroups, Match: "kubepods.slice"},
	)
	if p.config.Node.Kubelet.EndsPods() {
		p.add(state.Residue{Kind: state.Files, Match: logindDir + "/99-kubelet.conf"})
	}
	p.run(ContainerdUnit, KubeletUnit)
}

// logindDir is kubelet's directory for its shutdown inhibit limit (pkg/kubelet/nodeshutdown).
const logindDir = "/etc/systemd/logind.conf.d"
