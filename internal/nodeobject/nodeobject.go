// Package nodeobject observes and sets the Node object: registration, labels and cordon are
// resources like files and units, and this package is their host. It uses the node's own credential
// for the API server. What it cannot read is state.Unknown, which is neither drift nor absence.
package nodeobject

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Host is the Node object as a host of resources. It is not safe for concurrent use.
type Host struct {
	// Client returns the API client to use; the Host does not close it.
	Client func(ctx context.Context) (*kube.Client, error)
	Node   string
	// Taints, as key=value:Effect, are set on a Node that Set registers. Capacity returns the
	// resources of such a Node until kubelet reports its own.
	Taints   []string
	Capacity func(ctx context.Context) (corev1.ResourceList, error)

	// seen is set if node and err are the answer to a GET of the Node.
	seen bool
	node kube.Node
	err  error
}

// Observe returns the resource at key, from one GET of the Node until Set.
func (h *Host) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	if !h.seen {
		var n kube.Node
		client, err := h.Client(ctx)
		if err == nil {
			n, err = client.Node(ctx, h.Node)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("cannot read Node %s: %w", h.Node, context.Cause(ctx))
		}
		h.See(n, err)
	}
	n, missing := h.node, kube.NodeMissing(h.err)
	if h.err != nil && !missing {
		return state.Unknown{Of: key, Why: h.err.Error()}, nil
	}
	kind, name, _ := strings.Cut(strings.TrimPrefix(string(key), "node:"), ":")
	switch {
	case kind == "registration" && name == h.Node:
		return state.Registration{
			Node: name, Exists: !missing, PodCIDRs: n.Spec.PodCIDRs, Labels: n.Labels,
		}, nil
	case kind == "label" && name != "":
		value, set := n.Labels[name]
		return state.Label{Name: name, Value: value, Set: set}, nil
	case kind == "cordon" && name == "":
		return state.Cordon{On: n.Spec.Unschedulable}, nil
	}
	return nil, fmt.Errorf("internal error: %s is not part of the Node object %s", key, h.Node)
}

// See provides Observe with an answer of kube.Client.Node.
func (h *Host) See(n kube.Node, err error) { h.seen, h.node, h.err = true, n, err }

// Set changes a thing of the Node to c.To. A Node has no files with content.
func (h *Host) Set(ctx context.Context, c state.Change,
	_ func(sha256 string) (io.ReadCloser, error)) error {
	client, err := h.Client(ctx)
	if err != nil {
		return fmt.Errorf("cannot change Node %s: %w", h.Node, err)
	}
	defer func() { h.seen = false }() // the next Observe reads the Node again
	switch to := c.To.(type) {
	case state.Registration:
		return h.setRegistration(ctx, client, to)
	case state.Label:
		labels := map[string]*string{to.Name: nil}
		if to.Set {
			labels[to.Name] = &to.Value
		}
		return done(to.Set, client.PatchLabels(ctx, h.Node, labels))
	case state.Cordon:
		return done(to.On, client.Cordon(ctx, h.Node, to.On))
	}
	return fmt.Errorf("internal error: %s is not part of a Node object", c.To.Key())
}

// done returns the error of a change, but none for unsetting something of a missing Node.
func done(set bool, err error) error {
	if !set && kube.NodeMissing(err) {
		return nil
	}
	return err
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
