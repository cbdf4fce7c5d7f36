package node

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// managedLabel with the value "false" tells AKS that it does not manage the machine; without it the
// cloud controller deletes the Node when it is not ready.
const managedLabel = "kubernetes.azure.com/managed"

// nodeLabels are the labels of the Node that are kept as configured.
func nodeLabels(c config.Config) map[string]string {
	labels := map[string]string{managedLabel: "false"}
	maps.Copy(labels, c.Node.Labels)
	return labels
}

// firstLabels are the labels that the Node is registered with. That of its pod subnet is not kept
// after that.
func firstLabels(c config.Config) map[string]string {
	labels := nodeLabels(c)
	if c.CNI.PodCIDR != "" {
		labels[config.PodCIDRLabel] = config.ShowPodCIDR(c.CNI.PodCIDR)
	}
	return labels
}

// registration holds the flags that kubelet reads only when it registers the Node. They are no part
// of its unit or of its configuration file, so that a change of them restarts nothing: the labels
// of a Node that exists are set by NodeObject, its taints by whoever may.
func registration(p *part) {
	args := []string{"--node-labels=" + pairs(firstLabels(p.config))}
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

// pairs renders a kubelet --node-labels value in the order of the keys.
func pairs(set map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		list = append(list, key+"="+set[key])
	}
	return strings.Join(list, ",")
}

// NodeObject returns what the Node object in the cluster must be: registered, with its labels. Its
// taints are not in it: a node may not change them (NodeRestriction).
func NodeObject(c config.Config, b Bindings) state.Desired {
	labels := nodeLabels(c)
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
