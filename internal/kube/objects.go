package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// ServerVersion returns the API server's version without "v" and a vendor's suffix, "1.34.4".
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	body, err := c.core.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot ask the API server for its version: %w", err)
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return "", fmt.Errorf("cannot read the API server's version: %w", err)
	}
	m := regexp.MustCompile(`\Av?(\d+\.\d+\.\d+)`).FindStringSubmatch(version.GitVersion)
	if m == nil {
		return "", fmt.Errorf("cannot read the API server's version: %.40q", version.GitVersion)
	}
	return m[1], nil
}

// ClusterUID returns what tells this cluster from all others: the uid of the Service
// default/kubernetes, which the API server makes once.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	s, err := c.Service(ctx, "default", "kubernetes")
	return string(s.UID), err
}

// Lease is a coordination/v1 Lease.
type Lease = coordinationv1.Lease

// Lease returns the lease that kubelet renews every few seconds to say that the node is alive.
func (c *Client) Lease(ctx context.Context, node string) (Lease, error) {
	request := c.coordination.Get().Namespace(corev1.NamespaceNodeLease).Resource("leases").Name(node)
	return get[Lease](ctx, request, "read the lease of Node %s", node)
}

// Service returns a Service. Every node may read Services (ClusterRole system:node).
func (c *Client) Service(ctx context.Context, namespace, name string) (corev1.Service, error) {
	request := c.core.Get().Namespace(namespace).Resource("services").Name(name)
	return get[corev1.Service](ctx, request, "read the Service %s/%s", namespace, name)
}
