package component

import (
	"fmt"
	"path"
	"strings"

	"github.com/Azure/AKSFlexNode/lab/components"
)

// The names of the components.
const (
	Etcd                   = "etcd"
	KubernetesControlPlane = "kubernetes-control-plane"
	KubernetesNode         = "kubernetes-node"
	KubernetesTests        = "kubernetes-tests"
	Containerd             = "containerd"
	Runc                   = "runc"
	CNIPlugins             = "cni-plugins"
	NodeProblemDetector    = "node-problem-detector"
	CoreDNS                = "coredns"
	Helm                   = "helm"
	NetworkProxy           = "network-proxy"
)

// All returns every component of the lab in build order: the control plane's, those of a node of
// the newest versions, older versions from which upgrades start, then tools.
func All() ([]Component, error) {
	list := []Component{
		etcd("3.6.8"),
		controlPlane("1.36.3"),
		coredns("1.14.2"),
		node("1.36.3"),
		containerd("2.3.4"),
		runc("1.4.3"),
		cniPlugins("1.9.1"),
		nodeProblemDetector("1.34.0"),
		olderNode("1.34.4"),
		containerd("2.1.9"),
		node("1.36.2"),
		helm("3.19.5", "34"),
		kubernetesTests("1.36.3"),
		networkProxy("0.34.0"),
	}
	for i, c := range list {
		module := c.String()
		if c.Name == KubernetesControlPlane || c.Name == KubernetesNode {
			module = "kubernetes-" + c.Version
		}
		var err error
		if list[i].Sources, err = components.Module(module, c.Name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// etcd has the version that kubeadm installs with the newest Kubernetes.
func etcd(version string) Component {
	return Component{Name: Etcd, Version: version, Builds: []Build{{Programs: []Program{
		{
			Name: "etcd", Package: "go.etcd.io/etcd/server/v3", Version: []string{"--version"},
			Prints: "etcd Version: " + version,
		},
	}}}}
}

// coredns has the version that kubeadm installs with the newest Kubernetes, with the plugins in the
// lab's Corefile.
func coredns(version string) Component {
	return Component{Name: CoreDNS, Version: version, Builds: []Build{{
		Tags: []string{"grpcnotrace"}, // as in its Makefile
		Programs: []Program{
			{
				Name: "coredns", Package: components.Path + "coredns-" + version + "/coredns",
				Version: []string{"-version"}, Prints: "CoreDNS-" + version,
			},
		},
	}}}
}

func controlPlane(version string) Component {
	return Component{Name: KubernetesControlPlane, Version: version, Builds: []Build{
		kubernetes(version,
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"),
	}}
}

func node(version string) Component {
	return Component{Name: KubernetesNode, Version: version, Builds: []Build{
		kubernetes(version, "kubelet", "kubectl", "kubeadm"),
	}}
}

// olderNode is a node of another minor version, whose packages are compiled for it alone. Without
// inlining that takes a sixth less time, and upgrades only start from it.
func olderNode(version string) Component {
	c := node(version)
	c.Builds[0].NoInlining = "k8s.io/..."
	return c
}

// kubernetes uses the tags of the project's hack/lib/golang.sh; without grpcnotrace the linker
// keeps dead code. The version is set for kubelet's --version and for client-go's user agent; the
// commit would otherwise be a template.
func kubernetes(version string, programs ...string) Build {
	b := Build{Tags: []string{"selinux", "notest", "grpcnotrace"}}
	numbers := strings.Split(version, ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		b.LDFlags = append(
			b.LDFlags, "-X "+pkg+".gitVersion=v"+version, "-X "+pkg+".gitMajor="+numbers[0],
			"-X "+pkg+".gitMinor="+numbers[1], "-X "+pkg+".gitTreeState=clean",
			"-X "+pkg+".gitCommit=",
		)
	}
	for _, name := range programs {
		p := Program{
			Name: name, Package: "k8s.io/kubernetes/cmd/" + name, Version: []string{"--version"},
			Prints: "Kubernetes v" + version,
		}
		switch name {
		case "kubectl":
			p.Version, p.Prints = []string{"version", "--client"}, "Client Version: v"+version
		case "kubeadm":
			p.Version = []string{"version"}
			p.Prints = fmt.Sprintf("Major:%q, Minor:%q", numbers[0], numbers[1])
		}
		b.Programs = append(b.Programs, p)
	}
	return b
}

// kubernetesTests are Kubernetes' end-to-end tests, the program that runs them in several
// processes, and the programs and files of their images. Programs without a version are identified
// by their flags or their only line of output.
func kubernetesTests(version string) Component {
	const module = "k8s.io/kubernetes"
	tests, programs := kubernetes(version), kubernetes(version)
	tests.Tests = true
	tests.Programs = []Program{
		{
			Name: "e2e.test", Package: module + "/test/e2e", Version: []string{"--version"},
			Prints: "v" + version,
		},
		{
			Name: "e2e_node.test", Package: module + "/test/e2e_node", Version: []string{"--help"},
			Prints: "--system-validate-mode",
		},
	}
	programs.Programs = []Program{
		{
			Name: "ginkgo", Package: "github.com/onsi/ginkgo/v2/ginkgo", Version: []string{"version"},
			Prints: "Ginkgo Version 2.",
		},
		{
			Name: "agnhost", Package: module + "/test/images/agnhost", Version: []string{"--version"},
			Prints: "app version",
		},
		{
			Name: "nnp", Package: module + "/test/images/nonewprivs", Version: []string{"--version"},
			Prints: "Effective uid",
		},
		{
			Name: "sample-apiserver", Package: "k8s.io/sample-apiserver", Version: []string{"--help"},
			Prints: "wardle",
		},
	}
	c := Component{Name: KubernetesTests, Version: version, Builds: []Build{tests, programs}}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		c.Extras = append(c.Extras, Extra{
			Name: name, Module: module, Path: "test/images/agnhost/porter/" + name,
		})
	}
	return c
}

// containerd builds the shim separately, without gRPC, as the project does. The excluded
// snapshotters need C libraries.
func containerd(version string) Component {
	const pkg = "github.com/containerd/containerd/v2"
	tags := []string{"urfave_cli_no_docs", "static_build", "no_btrfs", "no_zfs", "no_devmapper"}
	stamp := []string{"-X " + pkg + "/version.Version=v" + version}
	program := func(name, arg string) Program {
		return Program{
			Name: name, Package: pkg + "/cmd/" + name, Version: []string{arg},
			Prints: "v" + version,
		}
	}
	return Component{Name: Containerd, Version: version, Builds: []Build{
		{
			Tags: tags, LDFlags: stamp,
			Programs: []Program{program("containerd", "--version"), program("ctr", "--version")},
		},
		{
			Tags: append([]string{"no_grpc"}, tags...), LDFlags: stamp,
			Programs: []Program{program("containerd-shim-runc-v2", "-v")},
		},
	}}
}

// runc enters namespaces in C code. Its version is compiled in from a source file.
func runc(version string) Component {
	return Component{Name: Runc, Version: version, Builds: []Build{{
		Tags:    []string{"seccomp", "urfave_cli_no_docs", "netgo", "osusergo"},
		LDFlags: []string{"-extldflags -static"}, CGO: true,
		Programs: []Program{
			{
				Name: "runc", Package: "github.com/opencontainers/runc",
				Version: []string{"--version"}, Prints: "runc version " + version,
			},
		},
	}}}
}

func cniPlugins(version string) Component {
	const module = "github.com/containernetworking/plugins"
	b := Build{
		LDFlags: []string{"-X " + module + "/pkg/utils/buildversion.BuildVersion=v" + version},
	}
	for _, p := range []string{
		"main/bridge", "main/dummy", "main/host-device", "main/ipvlan", "main/loopback",
		"main/macvlan", "main/ptp", "main/tap", "main/vlan",
		"ipam/dhcp", "ipam/host-local", "ipam/static",
		"meta/bandwidth", "meta/firewall", "meta/portmap", "meta/sbr", "meta/tuning", "meta/vrf",
	} {
		name := path.Base(p)
		b.Programs = append(b.Programs, Program{
			Name: name, Package: module + "/plugins/" + p,
			Version: []string{"--version"}, Prints: "v" + version,
		})
	}
	return Component{
		Name: CNIPlugins, Version: version, Builds: []Build{b},
		Extras: []Extra{{Name: "LICENSE", Module: module, Path: "LICENSE"}},
	}
}

// networkProxy is konnectivity in the newest version of its module. Its programs do not print a
// version.
func networkProxy(version string) Component {
	const pkg = "sigs.k8s.io/apiserver-network-proxy/cmd/"
	program := func(name, flag string) Program {
		return Program{
			Name: "proxy-" + name, Package: pkg + name, Version: []string{"--help"}, Prints: flag,
		}
	}
	return Component{Name: NetworkProxy, Version: version, Builds: []Build{{
		Programs: []Program{
			program("server", "--proxy-strategies"), program("agent", "--agent-identifiers"),
		},
	}}}
}

// helm is the release whose library checks the chart (packaging/helm/tools). Without a cluster it
// assumes the Kubernetes version of its own client, as its Makefile sets it.
func helm(version, minor string) Component {
	const module = "helm.sh/helm/v3"
	flags := []string{"-X " + module + "/internal/version.version=v" + version}
	for _, pkg := range []string{"chartutil", "lint/rules"} {
		of := "-X " + module + "/pkg/" + pkg + ".k8sVersion"
		flags = append(flags, of+"Major=1", of+"Minor="+minor)
	}
	return Component{Name: Helm, Version: version, Builds: []Build{{
		LDFlags: flags,
		Programs: []Program{
			{
				Name: "helm", Package: module + "/cmd/helm",
				Version: []string{"version", "--short"}, Prints: "v" + version,
			},
		},
	}}}
}

// nodeProblemDetector omits the journald watcher, which needs C, and a cloud's exporter; it keeps
// the kernel log watcher.
func nodeProblemDetector(version string) Component {
	const module = "k8s.io/node-problem-detector"
	c := Component{Name: NodeProblemDetector, Version: version, Builds: []Build{{
		Tags:    []string{"disable_stackdriver_exporter"},
		LDFlags: []string{"-X " + module + "/pkg/version.version=v" + version},
		Programs: []Program{
			{
				Name: "node-problem-detector", Package: module + "/cmd/nodeproblemdetector",
				Version: []string{"--version"}, Prints: "v" + version,
			},
		},
	}}}
	for _, name := range []string{
		"kernel-monitor.json", "readonly-monitor.json", "systemd-monitor.json",
	} {
		c.Extras = append(c.Extras, Extra{Name: name, Module: module, Path: "config/" + name})
	}
	return c
}
