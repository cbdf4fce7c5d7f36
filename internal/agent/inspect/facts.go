package inspect

import (
	"slices"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// filled tells whether somebody has put something into a directory.
func filled(r state.Resource) bool {
	switch r := r.(type) {
	case state.Dir:
		return !r.Empty
	case state.Link:
		return r.Dir != nil && !r.Dir.Empty
	}
	return false
}

// PodCIDRs returns the pod subnets of a Node; nil while it has none.
func PodCIDRs(n kube.Node) []string {
	if len(n.Spec.PodCIDRs) > 0 {
		return n.Spec.PodCIDRs
	}
	if n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return nil
}

// rivals are the units of container runtimes and kubelets that would be in the way of ours.
func rivals() []string {
	return []string{
		node.ContainerdUnit, node.KubeletUnit, "docker.service", "crio.service", "k3s.service",
		"k3s-agent.service",
	}
}

// Query asks for all that is to be known of this machine. A unit of ours is no rival, nor is one of
// which a run that was interrupted has written no more than the file.
func Query(h *Node, c config.Config) host.Query {
	ledger := h.ledger.Ledger()
	units := slices.DeleteFunc(rivals(), func(unit string) bool {
		_, ours := ledger.Entry(state.UnitKey(unit))
		_, written := ledger.Entry(state.PathKey(node.UnitFile(unit)))
		return ours || written
	})
	return host.Query{
		CNIConfDir: c.Paths.CNI.ConfDir, Filesystems: []string{"/var/lib", "/opt"}, Units: units,
		Firewalls: c.Network.Firewall != config.FirewallIgnore,
	}
}

// StandingSwap returns the swap units that are masked. They remain so as long as the machine is a
// node: to unmask one turns swap on, and kubelet refuses to start.
func StandingSwap(h *Node) state.Desired {
	var all state.Desired
	for _, e := range h.ledger.Ledger().Entries {
		if unit, ok := e.Ours.Resource.(state.Unit); ok && unit.Enabled == state.Masked {
			all = append(all, state.Item{Step: e.Step, Resource: unit})
		}
	}
	return all
}

// Subnets are the pod subnets of a node: those of its configuration, else those that the cluster
// has allocated; nil when these are not known.
func Subnets(h *Node, c config.Config) []string {
	switch {
	case c.CNI.PodCIDR != "":
		return []string{c.CNI.PodCIDR}
	case h.Saved.Applied != nil && h.Saved.Applied.Config.CNI.PodCIDR != "":
		return nil
	}
	return h.Saved.Bindings.PodCIDRs
}

// ForeignNetworks are the network configurations that are not ours.
func ForeignNetworks(configs []string) []string {
	return slices.DeleteFunc(slices.Clone(configs), func(name string) bool {
		return name == node.ConflistName
	})
}
