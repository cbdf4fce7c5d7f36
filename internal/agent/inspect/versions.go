package inspect

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Versions are those that run, as kubelet tells them.
type Versions struct {
	Kubelet    string `json:"kubelet,omitempty"`
	Containerd string `json:"containerd,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	OS         string `json:"os,omitempty"`
}

// versionsOf reads the versions from a Node.
func versionsOf(n corev1.Node) Versions {
	i := n.Status.NodeInfo
	return Versions{
		Kubelet:    strings.TrimPrefix(i.KubeletVersion, "v"),
		Containerd: strings.TrimPrefix(i.ContainerRuntimeVersion, "containerd://"),
		Kernel:     i.KernelVersion, OS: i.OSImage,
	}
}
