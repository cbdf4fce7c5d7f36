package node

import "github.com/Azure/AKSFlexNode/internal/state"

// start runs the services. What running them leaves behind is claimed first, so that undoing, which
// goes the other way, stops the services and then takes those things away.
func start(p *part) {
	p.add(
		state.Residue{Kind: state.Interfaces, Match: bridge},
		state.Residue{Kind: state.Chains, Match: "KUBE-"},
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

// logindDir is where kubelet writes how long a shutdown may wait for it (pkg/kubelet/nodeshutdown).
const logindDir = "/etc/systemd/logind.conf.d"

// startTools runs what comes once the Node is Ready.
func startTools(p *part) { p.run(NPDUnit) }
