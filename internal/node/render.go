// Package node says what a Kubernetes node is made of. Render turns a configuration and a few facts
// about the machine into the ordered list of resources that the machine must have; Bind fills in
// what can change under a healthy node, such as the API server's address. NodeObject is the same
// for the Node object in the cluster. It is the room to change: a new kubelet setting is one line
// here, and install, dry run, drift, repair, rollback and removal follow from it. Everything is
// pure: no file, no network, no clock, and the same input gives the same output.
package node

import (
	"cmp"
	"io/fs"
	"path"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Facts holds the input of Render beside the configuration: found on the machine or at the mirrors.
type Facts struct {
	// Arch is amd64 or arm64.
	Arch string `json:"arch"`
	// ResolvConf is the resolver configuration that pods inherit: no stub on this machine.
	ResolvConf string `json:"resolvConf"`
	// Processors is the amount of processor, in thousandths of one, and Memory that in bytes.
	Processors int   `json:"processors,omitempty"`
	Memory     int64 `json:"memory,omitempty"`
	// SwapUnits are the systemd units that would turn swap on again at boot.
	SwapUnits []string `json:"swapUnits,omitempty"`
	// HostName is the machine's.
	HostName string `json:"hostName,omitempty"`
	// StaticName is the machine's in /etc/hostname, or "".
	StaticName string `json:"staticName,omitempty"`
	// NvidiaRuntime is the path of NVIDIA's container runtime, or "".
	NvidiaRuntime string `json:"nvidiaRuntime,omitempty"`
	// Firewalls are the owner's that stop a node's traffic, where they are to be opened.
	Firewalls []Firewall `json:"firewalls,omitempty"`
	// MetadataResolver reports whether this machine resolves names at MetadataAddress.
	MetadataResolver bool `json:"metadataResolver,omitempty"`
	// Advertised are the network interfaces whose default route of IPv6 the kernel has learned from
	// a router's advertisements, and gives up when it forwards.
	Advertised []string `json:"advertised,omitempty"`
	// Store maps the name of an artifact to the directory that holds its files.
	Store map[string]string `json:"store"`
}

// Renames reports whether a Node of that name must be told to kubelet, which by itself takes the
// machine's name in lower case (k8s.io/component-helpers/node/util, GetHostname). A name that is
// not the static one too may be another after the next boot.
func (f Facts) Renames(nodeName string) bool {
	other := func(name string) bool { return strings.ToLower(strings.TrimSpace(name)) != nodeName }
	return other(f.HostName) || other(f.StaticName)
}

// What an item can wait for. An item that needs something comes after all that can be had without.
const (
	// Credential: kubelet has a credential of its own.
	Credential state.Need = "credential"
	// Network: the node's pod subnets are known, or another program configures the pod network.
	Network state.Need = "network"
	// Ready: the Node is Ready.
	Ready state.Need = "ready"
)

// Where our own things live.
const (
	OptDir   = "/opt/aks-flex-node"
	StoreDir = OptDir + "/store"
	binDir   = "/usr/local/bin"
	sbinDir  = "/usr/local/sbin"
	unitDir  = "/etc/systemd/system"
)

// UnitFile is where a unit of ours is.
func UnitFile(name string) string { return unitDir + "/" + name }

// part is one part of the node while it is rendered.
type part struct {
	config config.Config
	facts  Facts
	step   state.Step
	needs  state.Need
	only   state.Only
	items  state.Desired
}

// put appends an item of the current step, under the current condition unless it has its own.
func (p *part) put(item state.Item) {
	item.Step, item.Needs, item.Only = p.step, p.needs, cmp.Or(item.Only, p.only)
	p.items = append(p.items, item)
}

// add appends resources.
func (p *part) add(resources ...state.Resource) {
	for _, r := range resources {
		p.put(state.Item{Resource: r})
	}
}

// owe appends resources whose change makes units restart.
func (p *part) owe(units []string, resources ...state.Resource) {
	for _, r := range resources {
		p.put(state.Item{Resource: r, Owes: units})
	}
}

// unit writes the unit file of a service.
func (p *part) unit(name string, mode fs.FileMode, content string) {
	p.owe([]string{state.DaemonReload, name}, state.NewFile(UnitFile(name), mode, content))
}

// run has a service run, now and after each boot.
func (p *part) run(units ...string) {
	for _, name := range units {
		p.add(state.Unit{Name: name, Enabled: state.Enabled, Active: true})
	}
}

// bin is a link at dir to a file of an artifact, under its own name.
func (p *part) bin(dir, artifact, file string) state.Link {
	return state.Link{
		Path:   path.Join(dir, path.Base(file)),
		Target: path.Join(p.facts.Store[artifact], file),
	}
}

// Render returns what the machine must have to be the node that the configuration describes. The
// configuration is valid (it came from config.Load). The list holds the items of every situation,
// with placeholders for bindings: Bind makes it the list of one machine at one time.
func Render(c config.Config, f Facts) state.Desired {
	p := &part{config: c, facts: f}
	for _, s := range [...]struct {
		step   state.Step
		needs  state.Need
		render func(*part)
	}{
		{state.Arc, "", arcAgent},
		{state.Directories, "", directories},
		{state.System, "", system},
		{state.Runc, "", runc},
		{state.Containerd, "", containerd},
		{state.Kubernetes, "", kubernetes},
		{state.CNI, "", cni},
		{state.Credentials, "", credentials},
		{state.Kubelet, "", kubelet},
		{state.Start, "", start},

		{state.CNI, Network, podNetwork},

		{state.Credentials, Ready, withoutToken},
		{state.Kubernetes, Ready, tools},
		{state.Start, Ready, startTools},
	} {
		p.step, p.needs, p.only = s.step, s.needs, ""
		s.render(p)
	}
	return p.items
}

// Foundation is the first part of every node: directories that must be ours before downloads.
func Foundation(c config.Config) state.Desired {
	p := &part{config: c, step: state.Directories}
	foundation(p)
	return p.items
}
