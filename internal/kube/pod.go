package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod is a core/v1 Pod.
type Pod = corev1.Pod

// Pods returns the pods of all namespaces that are assigned to the Node called name.
func (c *Client) Pods(ctx context.Context, name string) ([]Pod, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	var list corev1.PodList
	err := c.rest.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+name).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("cannot list the pods of Node %s: %w", name, plain(err))
	}
	return list.Items, nil
}

// stays tells whether draining leaves a pod alone: a DaemonSet would put it back at once, and a mirror pod only shows a manifest on
// the machine.
func stays(p Pod) bool {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(&p)
	return owner != nil && owner.Kind == "DaemonSet"
}

// over tells whether a pod has run to its end, so that nothing is lost with it.
func over(p Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func hasEmptyDir(p Pod) bool {
	for _, volume := range p.Spec.Volumes {
		if volume.EmptyDir != nil {
			return true
		}
	}
	return false
}
