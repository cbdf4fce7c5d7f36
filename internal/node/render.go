// Package node defines a Kubernetes node. Render turns a configuration and a few facts about the
// machine into the ordered list of resources that the machine must have; Bind fills in values that
// can change under a healthy node, such as the API server's address. NodeObject does the same for
// the Node object in the cluster. Most changes start here: a new kubelet setting is one line, and
// install, dry run, drift, repair, rollback and removal follow from it. Everything is pure: no
// file, no network, no clock, and the same input gives the same output.
package node

import (
	"cmp"
	"io/fs"
	"path"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Facts holds the input of Render beside the configuration, from the machine or the mirrors.
type Facts struct {
	Arch string `json:"arch"` // amd64 or arm64
	// ResolvConf is the resolver configuration for pods, without a stub on this machine.
	ResolvConf string `json:"resolvConf"`
	// Processors is in thousandths of a processor, and Memory in bytes.
	Processors int   `json:"processors,omitempty"`
	Memory     int64 `json:"memory,omitempty"`
	// SwapUnits are the systemd units that would turn swap on again at boot.
	SwapUnits []string `json:"swapUnits,omitempty"`
	HostName  string   `json:"hostName,omitempty"`
	// StaticName is the host name in /etc/hostname, or "".
	StaticName    string `json:"staticName,omitempty"`
	NvidiaRuntime string `json:"nvidiaRuntime,omitempty"` // the path of NVIDIA's runtime, or ""
	// Firewalls are the owner's firewalls to open, because they stop a node's traffic.
	Firewalls []state.Firewall `json:"firewalls,omitempty"`
	// MetadataResolver reports whether this machine resolves names at MetadataAddress.
	MetadataResolver bool `json:"metadataResolver,omitempty"`
	// Advertised are the network interfaces whose IPv6 default route the kernel learned from router
	// advertisements, and gives up when it forwards.
	Advertised []string `json:"advertised,omitempty"`
	// Store maps the name of an artifact to the directory that holds its files.
	Store map[string]string `json:"store"`
}

// Renames reports whether kubelet must be told the Node's name. By default it uses the machine's
// host name in lower case (k8s.io/component-helpers/node/util, GetHostname). A name that is not
// also the static one may change at the next boot.
func (f Facts) Renames(nodeName string) bool {
	other := func(name string) bool { return strings.ToLower(strings.TrimSpace(name)) != nodeName }
	return other(f.HostName) || other(f.StaticName)
}

// The needs of items. An item with a need comes after all that have none.
const (
	Credential state.Need = "credential" // kubelet has a credential of its own
	Network    state.Need = "network"    // pod subnets are known, or others configure the network
	Ready      state.Need = "ready"      // the Node is Ready
)

// Our own directories.
const (
	OptDir   = "/opt/aks-flex-node"
	StoreDir = OptDir + "/store"
	binDir   = "/usr/local/bin"
	sbinDir  = "/usr/local/sbin"
	unitDir  = "/etc/systemd/system"
)

// UnitFile returns the path of one of our units.
func UnitFile(name string) string { return unitDir + "/" + name }

// part is one part of the node while it is being rendered.
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

func (p *part) add(resources ...state.Resource) { p.owe(nil, resources...) }

// owe appends resources whose change makes units restart.
func (p *part) owe(units []string, resources ...state.Resource) {
	for _, r := range resources {
		p.put(state.Item{Resource: r, Owes: units})
	}
}

func (p *part) unit(name string, mode fs.FileMode, content string) {
	p.owe([]string{state.DaemonReload, name}, state.NewFile(UnitFile(name), mode, content))
}

func (p *part) run(units ...string) {
	for _, name := range units {
		p.add(state.Unit{Name: name, Enabled: state.Enabled, Active: true})
	}
}

// bin returns a link in dir to a file of an artifact, under its own name.
func (p *part) bin(dir, artifact, file string) state.Link {
	return state.Link{
		Path:   path.Join(dir, path.Base(file)),
		Target: path.Join(p.facts.Store[artifact], file),
	}
}

// Render returns the resources that make the machine the node in the configuration, which must be
// valid (from config.Load). The list holds the items for every situation, with placeholders for
// bindings: Bind turns it into the list for one machine at one time.
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
		{state.Runc, "", func(p *part) { p.add(p.bin(sbinDir, "runc", "runc")) }},
		{state.Containerd, "", containerd},
		{state.Kubernetes, "", kubernetes},
		{state.CNI, "", cni},
		{state.Credentials, "", credentials},
		{state.Kubelet, "", kubelet},
		{state.Start, "", start},

		{state.CNI, Network, podNetwork},

		{state.Credentials, Ready, withoutToken},
		{state.Kubernetes, Ready, tools},
		{state.Start, Ready, func(p *part) { p.run(NPDUnit) }},
	} {
		p.step, p.needs, p.only = s.step, s.needs, ""
		s.render(p)
	}
	return p.items
}

// Foundation returns the first part of every node: directories that we must own before downloads.
func Foundation(c config.Config) state.Desired {
	p := &part{config: c, step: state.Directories}
	foundation(p)
	return p.items
}
