package node

import "github.com/Azure/AKSFlexNode/internal/state"

// start runs the services. What running them leaves behind is claimed first, so that undoing, which
// goes the other way, stops the services and then takes those things away.
func start(p *part) {
	p.add(
		state.Residue{Kind: state.Interfaces, Match: bridge},
		state.Residue{Kind: state.Chains, Match: "KUBE-"},
		state.Residue{Kind: state.Chains, Match: "CNI-"},
		state.Residue{Kind: state.Mounts, Match: "/run/netns/cni-"},
		state.Residue{Kind: state.Processes, Match: OptDir},
		state.Residue{Kind: state.Cgroups, Match: "kubepods.slice"},
		state.Unit{Name: ContainerdUnit, Enabled: state.Enabled, Active: true},
		state.Unit{Name: KubeletUnit, Enabled: state.Enabled, Active: true},
	)
}

// startTools runs what comes once the Node is Ready.
func startTools(p *part) {
	p.add(state.Unit{Name: NPDUnit, Enabled: state.Enabled, Active: true})
}
