package nodeobject

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

func (h *Host) registration(v view) state.Registration {
	if !v.exists {
		return state.Registration{Node: h.Node}
	}
	return state.Registration{
		Node: h.Node, Exists: true, PodCIDRs: v.node.Spec.PodCIDRs, Labels: v.node.Labels,
	}
}

// setRegistration registers the Node as it was, so that its pods keep their subnet and its labels
// their values, or deletes it. It has its capacity from the beginning: kubelet compares the pods
// that run with what the Node has when it starts, and a Node without resources has room for none,
// so that each would fail for good (OutOfpods).
func (h *Host) setRegistration(ctx context.Context, client *kube.Client,
	to state.Registration) error {
	if !to.Exists {
		return client.DeleteNode(ctx, h.Node)
	}
	labels := make(map[string]string)
	for key, value := range to.Labels {
		if allowed(key) {
			labels[key] = value
		}
	}
	capacity, err := h.Capacity(ctx)
	if err != nil {
		return err
	}
	var taints []corev1.Taint
	for _, text := range h.Taints {
		taint, err := kube.ParseTaint(text)
		if err != nil {
			return err
		}
		taints = append(taints, taint)
	}
	return client.CreateNode(ctx, kube.Node{
		ObjectMeta: metav1.ObjectMeta{Name: h.Node, Labels: labels},
		Spec:       corev1.NodeSpec{PodCIDRs: to.PodCIDRs, Taints: taints},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	})
}

// allowed tells whether a node may give itself a label. One that an operator or controller has set
// and that a node may not would have the whole registration refused (the admission plugin
// NodeRestriction; KEP 279).
func allowed(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	within := func(domain string) bool {
		return prefix == domain || strings.HasSuffix(prefix, "."+domain)
	}
	switch {
	case !found, !within("kubernetes.io") && !within("k8s.io"):
		return true
	case within("kubelet.kubernetes.io"), within("node.kubernetes.io"):
		return true
	default:
		return slices.Contains(ownLabels(), key)
	}
}

// ownLabels are the labels below kubernetes.io that kubelet may set.
func ownLabels() []string {
	return []string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type",
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
	}
}
