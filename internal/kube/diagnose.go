package kube

import (
	"errors"
	"fmt"
	"strings"
)

// Evidence is what is known about a node that did not become Ready.
type Evidence struct {
	NodeName string
	// Probe is what a Probe of the API server says now.
	Probe error
	// Containerd and Kubelet are how the services are.
	Containerd, Kubelet Service
	CSRs                []CSR
	// Node is the Node object, nil when it is not there or cannot be read.
	Node       *Node
	CNIConfigs []string
}

// Service is a systemd service: whether it runs, and what it logged last.
type Service struct {
	Active bool
	Log    []string
}

// Diagnose finds the layer that keeps a node from being Ready: the first of the chain that is broken.
func Diagnose(e Evidence) *Fault {
	for _, look := range []func(Evidence) *Fault{containerdFault, kubeletFault, probeFault, csrFault, nodeFault} {
		if f := look(e); f != nil {
			return f
		}
	}
	return &Fault{Layer: LayerNode, Message: "nothing is found to be wrong, but it takes long", Remedy: "look at `journalctl -u kubelet`, and try again with a larger agent.readyTimeout"}
}

func containerdFault(e Evidence) *Fault {
	if e.Containerd.Active {
		return nil
	}
	return &Fault{Layer: LayerContainerd, Message: "containerd does not run" + lastWords(e.Containerd.Log), Remedy: "look at `journalctl -u containerd`; drop-ins in /etc/containerd/conf.d may be wrong"}
}

// symptom is a line of kubelet's log that tells why it does not work.
type symptom struct{ text, message, remedy string }

// symptoms, the most decisive first.
var symptoms = [...]symptom{
	{"unknown flag", "kubelet does not know one of its flags", "check KUBELET_EXTRA_ARGS in /etc/default/kubelet"},
	{"cgroup v1", "kubelet refuses this machine's cgroup v1", "boot with cgroup v2, or allow it by failCgroupV1: false in a drop-in below kubelet.conf.d"},
	{"running with swap on is not supported", "kubelet refuses to run while swap is on", "find out what turned swap on again: swapon --show"},
	{"misconfiguration: kubelet cgroup driver", "kubelet and containerd disagree on the cgroup driver", "remove the drop-in that changes SystemdCgroup or cgroupDriver"},
	{"address already in use", "another program uses one of kubelet's ports", "find it with `ss -ltnp sport = :10250`, and stop it"},
	{"failed to load kubelet config file", "kubelet cannot read its configuration", "check the drop-ins below kubelet.conf.d"},
	{"invalid kernel flag", "a kernel parameter is not as kubelet demands", "something sets it after us: aks-flex-node drift tells which"},
	{"is forbidden: node", "the API server does not let this machine use this node name", "another machine may have it: choose another agent.nodeName"},
	{"Unable to register node", "the API server does not accept the Node", "look at `journalctl -u kubelet`"},
	{"x509:", "kubelet and the API server do not trust each other's certificates", "check node.kubelet.caCertData and the clock"},
}

func kubeletFault(e Evidence) *Fault {
	for _, s := range symptoms {
		for _, line := range e.Kubelet.Log {
			if strings.Contains(line, s.text) && e.Node == nil {
				return &Fault{Layer: LayerKubelet, Message: s.message + ": " + clip(line), Remedy: s.remedy}
			}
		}
	}
	if !e.Kubelet.Active {
		return &Fault{Layer: LayerKubelet, Message: "kubelet does not run" + lastWords(e.Kubelet.Log), Remedy: "look at `journalctl -u kubelet`"}
	}
	return nil
}

func probeFault(e Evidence) *Fault {
	f, isFault := errors.AsType[*Fault](e.Probe)
	if e.Probe != nil && !isFault { // before the API server: no token was to be had, or its identity may do nothing
		return &Fault{Layer: LayerAuth, Message: e.Probe.Error(), Remedy: "run the same command again when that is mended"}
	}
	return f
}

func csrFault(e Evidence) *Fault {
	if e.Node != nil || len(e.CSRs) == 0 {
		return nil
	}
	last := e.CSRs[len(e.CSRs)-1]
	switch last.State {
	case "pending":
		return &Fault{Layer: LayerCSR, Message: "kubelet's certificate request " + last.Name + " is pending: nobody has approved it",
			Remedy: "the cluster's operator can run `kubectl certificate approve " + last.Name + "`; so that it happens by itself, apply packaging/kubernetes/rbac.yaml"}
	case "denied", "failed":
		return &Fault{Layer: LayerCSR, Message: fmt.Sprintf("kubelet's certificate request %s was %s: %s", last.Name, last.State, last.Reason), Remedy: "ask the cluster's operator why"}
	case "approved":
		return &Fault{Layer: LayerCSR, Message: "kubelet's certificate request " + last.Name + " is approved, but no certificate was issued", Remedy: "check kube-controller-manager's signer"}
	}
	return nil
}

func nodeFault(e Evidence) *Fault {
	if e.Node == nil {
		return &Fault{Layer: LayerNode, Message: "kubelet runs but Node " + e.NodeName + " was not registered" + lastWords(e.Kubelet.Log), Remedy: "look at `journalctl -u kubelet`"}
	}
	ready := Ready(*e.Node)
	if ready.Status == "True" {
		return nil
	}
	if strings.Contains(ready.Message, "NetworkPluginNotReady") || strings.Contains(ready.Message, "cni plugin not initialized") {
		return networkFault(e)
	}
	return &Fault{Layer: LayerNode, Message: "kubelet says: " + ready.Message, Remedy: "look at `journalctl -u kubelet`"}
}

func networkFault(e Evidence) *Fault {
	switch {
	case len(e.CNIConfigs) > 0:
		return &Fault{Layer: LayerCNI, Message: "the pod network is configured (" + strings.Join(e.CNIConfigs, ", ") + ") but does not work", Remedy: "look at `journalctl -u containerd`"}
	case e.Node.Spec.PodCIDR == "":
		return &Fault{Layer: LayerCNI, Message: "the cluster has not allocated a pod subnet to this Node", Remedy: "set cni.podCIDR to a subnet that no other node has, or have the cluster allocate one (kube-controller-manager --allocate-node-cidrs), or install a network such as Cilium"}
	default:
		return &Fault{Layer: LayerCNI, Message: "there is no pod network configuration in /etc/cni/net.d", Remedy: "run `aks-flex-node drift --repair`"}
	}
}

// lastWords quotes the end of a log.
func lastWords(log []string) string {
	if len(log) == 0 {
		return ""
	}
	return ": " + clip(log[len(log)-1])
}

// clip keeps a log line short enough for a terminal.
func clip(line string) string {
	const most = 240
	line = strings.TrimSpace(line)
	if len(line) > most {
		return line[:most] + "..."
	}
	return line
}
