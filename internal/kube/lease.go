package kube

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Lease is a coordination/v1 Lease.
type Lease = coordinationv1.Lease

// Lease returns the lease that kubelet renews every few seconds to say that the node is alive.
func (c *Client) Lease(ctx context.Context, node string) (Lease, error) {
	var l Lease
	err := c.coordination.Get().Namespace(corev1.NamespaceNodeLease).Resource("leases").Name(node).
		Do(ctx).Into(&l)
	if err != nil {
		return l, fmt.Errorf("cannot read the lease of Node %s: %w", node, err)
	}
	return l, nil
}
