// Package nodeobject observes and sets the Node object: its registration, its labels and its cordon
// are resources like files and units, and this package is their host. It asks the API server with
// the node's own credential. What it cannot ask is state.Unknown, which is neither drift nor
// absence.
package nodeobject

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Host is the Node object as a host of resources.
type Host struct {
	// Client returns the client to ask with; the Host does not close it.
	Client func(ctx context.Context) (*kube.Client, error)
	Node   string
	// Taints, written key=value:Effect, are given to a Node that is registered by Set, and what
	// Capacity returns is what such a Node has until kubelet reports.
	Taints   []string
	Capacity func(ctx context.Context) (corev1.ResourceList, error)

	mu   sync.Mutex
	seen *view
}

// view is what one GET of the Node has shown, or why it has not.
type view struct {
	node kube.Node
	err  error
}

// Forget drops what was seen, so that the next Observe asks the API server again.
func (h *Host) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = nil
}

// Observe returns what is at key. All keys are answered from one GET of the Node, until Set or
// Forget.
func (h *Host) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	v, err := h.view(ctx)
	if err != nil {
		return nil, err
	}
	kind, name, _ := strings.Cut(strings.TrimPrefix(string(key), "node:"), ":")
	switch {
	case v.err != nil && !kube.NodeMissing(v.err):
		return state.Unknown{Of: key, Why: v.err.Error()}, nil
	case kind == "registration" && name == h.Node:
		return state.Registration{
			Node: h.Node, Exists: v.err == nil, PodCIDRs: v.node.Spec.PodCIDRs, Labels: v.node.Labels,
		}, nil
	case kind == "label" && name != "":
		value, set := v.node.Labels[name]
		return state.Label{Name: name, Value: value, Set: set}, nil
	case key == state.Cordon{}.Key():
		return state.Cordon{On: v.node.Spec.Unschedulable}, nil
	}
	return nil, fmt.Errorf("internal error: %s is not part of Node %s", key, h.Node)
}

// view returns what is seen of the Node. The error is ctx's: all else is part of what is seen.
func (h *Host) view(ctx context.Context) (view, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		v := h.read(ctx)
		if ctx.Err() != nil {
			return view{}, fmt.Errorf("cannot read Node %s: %w", h.Node, context.Cause(ctx))
		}
		h.seen = &v
	}
	return *h.seen, nil
}

func (h *Host) read(ctx context.Context) view {
	client, err := h.Client(ctx)
	if err != nil {
		return view{err: err}
	}
	node, err := client.Node(ctx, h.Node)
	return view{node, err}
}

// See takes an answer of kube.Client.Node for what Observe would have asked for.
func (h *Host) See(n kube.Node, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = &view{n, err}
}

// Set makes what is at the change's key as c.To says. content is not used: nothing of a Node is a
// file.
func (h *Host) Set(ctx context.Context, c state.Change,
	_ func(sha256 string) (io.ReadCloser, error)) error {
	client, err := h.Client(ctx)
	if err != nil {
		return fmt.Errorf("cannot change Node %s: %w", h.Node, err)
	}
	defer h.Forget()
	switch to := c.To.(type) {
	case state.Registration:
		return h.setRegistration(ctx, client, to)
	case state.Label:
		if to.Set {
			return client.PatchLabels(ctx, h.Node, map[string]*string{to.Name: &to.Value})
		}
		return orGone(client.PatchLabels(ctx, h.Node, map[string]*string{to.Name: nil}))
	case state.Cordon:
		if to.On {
			return client.Cordon(ctx, h.Node)
		}
		return orGone(client.Uncordon(ctx, h.Node))
	default:
		return fmt.Errorf("internal error: %s is not part of a Node object", c.To.Key())
	}
}

// orGone is the error of an undoing: what a Node had is gone with it.
func orGone(err error) error {
	if kube.NodeMissing(err) {
		return nil
	}
	return err
}
