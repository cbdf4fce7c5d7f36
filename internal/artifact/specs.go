package artifact

import "github.com/Azure/AKSFlexNode/internal/config"

// Specs lists the artifacts of a configuration.
func Specs(c config.Config, arch string) []Spec {
	k8s := func(name Name) Spec {
		url := c.Kubernetes.BinaryURL(string(name), arch)
		return Spec{Name: name, Version: c.Kubernetes.Version, Arch: arch, URL: url}
	}
	return []Spec{
		{Name: Containerd, Version: c.Containerd.Version, Arch: arch},
		k8s(Kubelet),
		{Name: Runc, Version: c.Runc.Version, Arch: arch, URL: c.Runc.BinaryURL(arch)},
		{Name: CNIPlugins, Version: c.CNI.Version, Arch: arch},
		k8s(Kubectl),
		k8s(Kubeadm),
		{Name: NPD, Version: c.NPD.Version, Arch: arch},
	}
}
