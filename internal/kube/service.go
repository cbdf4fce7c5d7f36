package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Service returns a Service. Every node may read Services (ClusterRole system:node).
func (c *Client) Service(ctx context.Context, namespace, name string) (corev1.Service, error) {
	var s corev1.Service
	err := c.core.Get().Namespace(namespace).Resource("services").Name(name).Do(ctx).Into(&s)
	if err != nil {
		return s, fmt.Errorf("cannot read the Service %s/%s: %w", namespace, name, err)
	}
	return s, nil
}
