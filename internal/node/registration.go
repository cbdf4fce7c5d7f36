package node

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// registration writes the flags that kubelet reads only when it registers the Node. They are
// outside its unit and configuration file, so that changing them restarts nothing: NodeObject sets
// the labels of an existing Node, and a user with the right to do so its taints.
func registration(p *part) {
	labels := maps.Clone(p.config.Node.Labels)
	// The Node is registered with this label, which is not maintained afterwards.
	if p.config.CNI.PodCIDR != "" {
		labels[config.PodCIDRLabel] = config.ShowPodCIDR(p.config.CNI.PodCIDR)
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, key+"="+labels[key])
	}
	args := []string{"--node-labels=" + strings.Join(list, ",")}
	if taints := p.config.Node.Taints; len(taints) > 0 {
		args = append(args, "--register-with-taints="+strings.Join(taints, ","))
	}
	// The unit has $KUBELET_REGISTRATION_ARGS without braces, which systemd splits at spaces
	// (systemd.service(5)); neither labels nor taints can hold one.
	content := header + "KUBELET_REGISTRATION_ARGS=" + quoteEnv(strings.Join(args, " ")) + "\n"
	p.add(state.NewFile(p.registrationPath(), 0o644, content))
}

func (p *part) registrationPath() string {
	return path.Join(p.config.Paths.Kubernetes.ConfigDir, "aks-flex-node-registration.env")
}

// NodeObject returns the wanted Node object in the cluster: registered, with its labels. Taints are
// not part of it: a node may not change them (NodeRestriction). It spares the labels that kubelet
// itself sets when it starts: without them no DaemonSet with a nodeSelector has pods here.
func NodeObject(c config.Config, b Bindings) state.Desired {
	labels := c.Node.Labels
	p := &part{config: c, step: state.Start, needs: Credential}
	p.add(state.Registration{
		Node: c.Agent.NodeName, Exists: true, PodCIDRs: b.PodCIDRs, Labels: labels,
	})
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		p.add(state.Label{Name: name, Value: labels[name], Set: true})
	}
	for _, name := range []string{"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch"} {
		p.put(state.Item{Resource: state.Label{Name: name}, Spared: true})
	}
	return p.items
}
