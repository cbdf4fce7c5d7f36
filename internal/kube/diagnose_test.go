package kube

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// node is a Node with a Ready condition.
func node(status corev1.ConditionStatus, message, podCIDR string) *Node {
	n := &Node{}
	n.Spec.PodCIDR = podCIDR
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: message}}
	return n
}

func TestDiagnose(t *testing.T) {
	const noNetwork = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	up := Service{Active: true}
	tests := []struct {
		name     string
		evidence Evidence
		layer    Layer
		says     string
	}{
		{"containerd is down", Evidence{Containerd: Service{Log: []string{"containerd: failed to load TOML: /etc/containerd/conf.d/x.toml"}}, Kubelet: up}, LayerContainerd, "conf.d/x.toml"},
		{"kubelet does not know a flag", Evidence{Containerd: up, Kubelet: Service{Log: []string{`"command failed" err="failed to parse kubelet flag: unknown flag: --pod-infra"`}}}, LayerKubelet, "KUBELET_EXTRA_ARGS"},
		{"kubelet and cgroup v1", Evidence{Containerd: up, Kubelet: Service{Log: []string{`"command failed" err="kubelet is configured to not run on a host using cgroup v1"`}}}, LayerKubelet, "failCgroupV1"},
		{"kubelet and swap", Evidence{Containerd: up, Kubelet: Service{Active: true, Log: []string{`"command failed" err="failed to run Kubelet: running with swap on is not supported, please disable swap"`}}}, LayerKubelet, "swapon --show"},
		{"kubelet's port is taken", Evidence{Containerd: up, Kubelet: Service{Active: true, Log: []string{`"Failed to listen and serve" err="listen tcp 0.0.0.0:10250: bind: address already in use"`}}}, LayerKubelet, "10250"},
		{"kubelet is stopped", Evidence{Containerd: up}, LayerKubelet, "does not run"},
		{"the network went away", Evidence{Containerd: up, Kubelet: up, Probe: &Fault{Layer: LayerTCP, Message: "cannot connect", Remedy: "check the network"}}, LayerTCP, "cannot connect"},
		{"no token", Evidence{Containerd: up, Kubelet: up, Probe: errors.New("cannot get a token for kubelet: Entra ID is ill")}, LayerAuth, "Entra ID is ill"},
		{"nobody approves", Evidence{Containerd: up, Kubelet: up, CSRs: []CSR{{Name: "csr-1", State: "pending"}}}, LayerCSR, "kubectl certificate approve csr-1"},
		{"denied", Evidence{Containerd: up, Kubelet: up, CSRs: []CSR{{Name: "csr-1", State: "denied", Reason: "not on my watch"}}}, LayerCSR, "not on my watch"},
		{"no signer", Evidence{Containerd: up, Kubelet: up, CSRs: []CSR{{Name: "csr-1", State: "approved"}}}, LayerCSR, "signer"},
		{"not registered", Evidence{NodeName: "edge-1", Containerd: up, Kubelet: up}, LayerNode, "edge-1 was not registered"},
		{"no pod subnet", Evidence{Containerd: up, Kubelet: up, Node: node("False", noNetwork, "")}, LayerCNI, "cni.podCIDR"},
		{"no network configuration", Evidence{Containerd: up, Kubelet: up, Node: node("False", noNetwork, "10.244.1.0/24")}, LayerCNI, "drift --repair"},
		{"a network that does not work", Evidence{Containerd: up, Kubelet: up, Node: node("False", noNetwork, "10.244.1.0/24"), CNIConfigs: []string{"05-cilium.conflist"}}, LayerCNI, "05-cilium.conflist"},
		{"kubelet's own words", Evidence{Containerd: up, Kubelet: up, Node: node("False", "PLEG is not healthy", "10.244.1.0/24")}, LayerNode, "PLEG is not healthy"},
		{"all is well, but late", Evidence{Containerd: up, Kubelet: up, Node: node("True", "", "10.244.1.0/24")}, LayerNode, "readyTimeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Diagnose(tt.evidence)
			if f.Layer != tt.layer || !strings.Contains(f.Error(), tt.says) {
				t.Errorf("diagnosis is %q; want layer %s and a word on %q", f.Error(), tt.layer, tt.says)
			}
			if f.Remedy == "" {
				t.Errorf("%q does not say what to do", f.Error())
			}
		})
	}
}
