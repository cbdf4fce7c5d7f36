package node

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// registration holds the flags that kubelet reads only when it registers the Node. They are no part
// of its unit or of its configuration file, so that a change of them restarts nothing: the labels
// of a Node that exists are set by NodeObject, its taints by a user who may.
func registration(p *part) {
	labels := maps.Clone(p.config.Node.Labels)
	// The Node is registered with this label, which is not kept after that.
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

// NodeObject returns what the Node object in the cluster must be: registered, with its labels. Its
// taints are not in it: a node may not change them (NodeRestriction).
func NodeObject(c config.Config, b Bindings) state.Desired {
	labels := c.Node.Labels
	p := &part{config: c, step: state.Start, needs: Credential}
	p.add(state.Registration{
		Node:     c.Agent.NodeName,
		Exists:   true,
		PodCIDRs: b.PodCIDRs,
		Labels:   labels,
	})
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		p.add(state.Label{Name: name, Value: labels[name], Set: true})
	}
	return p.items
}
