package node

import (
	"path"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Formerly maps the things that have another place now to the one where releases before generations
// (package agent, migrate) made them.
func Formerly(c config.Config) map[state.Key]state.Key {
	p := &part{config: c}
	kubelet := path.Join(c.Paths.Kubernetes.ConfigDir, "kubelet.yaml")
	return map[state.Key]state.Key{
		state.PathKey(p.kubeletConfigPath()): state.PathKey(kubelet),
		state.PathKey(sysctlFile):            state.PathKey("/etc/sysctl.d/99-aks-flex-node.conf"),
	}
}
