package nodeobject

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/config"
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

// setRegistration registers the Node with its capacity, or deletes it: on a Node without resources
// kubelet fails its pods for good (OutOfpods).
func (h *Host) setRegistration(ctx context.Context, client *kube.Client,
	to state.Registration) error {
	if !to.Exists {
		return client.DeleteNode(ctx, h.Node)
	}
	// A single label that a node may not set on itself would make the API server refuse the whole
	// registration (the admission plugin NodeRestriction; KEP 279).
	labels := maps.Clone(to.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return !config.IsLabel(key) })
	capacity, err := h.Capacity(ctx)
	if err != nil {
		return err
	}
	var taints []corev1.Taint
	for _, text := range h.Taints {
		taints = append(taints, kube.TaintOf(text))
	}
	return client.CreateNode(ctx, kube.Node{
		ObjectMeta: metav1.ObjectMeta{Name: h.Node, Labels: labels},
		Spec:       corev1.NodeSpec{PodCIDRs: to.PodCIDRs, Taints: taints},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	})
}
