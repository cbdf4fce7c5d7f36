// Package node says what a Kubernetes node is made of: Render turns a configuration and a few facts into the ordered list of
// resources that a machine must have. It is the room to change: a new kubelet setting is one line here, and install, dry run,
// drift, repair, rollback and removal follow from it. Rendering is pure: no file, no network, no clock, and the same input
// gives the same output.
package node

import (
	"path"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Facts is what Render must know beside the configuration: found out on the host, in the cluster or from the mirrors.
type Facts struct {
	// Arch is amd64 or arm64.
	Arch string `json:"arch"`
	// Server is the API server's URL and CA the PEM certificates that it is verified with.
	Server string `json:"server"`
	CA     string `json:"ca"`
	// ResolvConf is the resolver configuration that pods inherit: a real one, not a stub that points to this machine.
	ResolvConf string `json:"resolvConf"`
	// PodCIDR is this node's pod subnet; empty until the cluster has allocated one.
	PodCIDR string `json:"podCIDR,omitempty"`
	// Joined tells that kubelet has a credential of its own: the bootstrap token goes, and what a node does not need to be Ready comes.
	Joined bool `json:"joined"`
	// ForeignCNI lists network configurations that are not ours; if there are any, ours stays away.
	ForeignCNI []string `json:"foreignCNI,omitempty"`
	// Swaps are the swap areas in use and SwapUnits the systemd units that would bring swap back at boot.
	Swaps     []string `json:"swaps,omitempty"`
	SwapUnits []string `json:"swapUnits,omitempty"`
	// Program is the path of aks-flex-node itself, which kubelet calls for tokens.
	Program string `json:"program,omitempty"`
	// Store maps the name of an artifact to the directory that holds its files.
	Store map[string]string `json:"store"`
}

// Where our own things live.
const (
	OptDir   = "/opt/aks-flex-node"
	StoreDir = OptDir + "/store"
	binDir   = "/usr/local/bin"
	sbinDir  = "/usr/local/sbin"
	unitDir  = "/etc/systemd/system"
)

// part is one part of the node while it is rendered.
type part struct {
	config config.Config
	facts  Facts
	step   state.Step
	items  state.Desired
}

// add appends resources of the current step.
func (p *part) add(resources ...state.Resource) {
	for _, r := range resources {
		p.items = append(p.items, state.Item{Step: p.step, Resource: r})
	}
}

// owe appends resources whose change makes units restart.
func (p *part) owe(units []string, resources ...state.Resource) {
	for _, r := range resources {
		p.items = append(p.items, state.Item{Step: p.step, Resource: r, Owes: units})
	}
}

// bin is a link at dir to a file of an artifact, under its own name.
func (p *part) bin(dir, artifact, file string) state.Link {
	return state.Link{Path: path.Join(dir, path.Base(file)), Target: path.Join(p.facts.Store[artifact], file)}
}

// Render returns what the machine must have to be the node that the configuration describes. The configuration is valid (it
// came from config.Load); what the facts do not know yet (PodCIDR, Joined) leaves its part out, to be rendered again later.
func Render(c config.Config, f Facts) state.Desired {
	p := &part{config: c, facts: f}
	steps := []struct {
		step   state.Step
		render func(*part)
	}{
		{state.Directories, directories},
		{state.System, system},
		{state.Runc, runc},
		{state.Containerd, containerd},
		{state.Kubernetes, kubernetes},
		{state.CNI, cni},
		{state.Credentials, credentials},
		{state.Kubelet, kubelet},
		{state.Start, start},
	}
	for _, s := range steps {
		p.step = s.step
		s.render(p)
	}
	return p.items
}

// Foundation returns the first part of every node: the directories that must be ours before anything is logged or downloaded
// into them.
func Foundation(c config.Config) state.Desired {
	p := &part{config: c, step: state.Directories}
	foundation(p)
	return p.items
}
