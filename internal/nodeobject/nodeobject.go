// Package nodeobject observes and sets the Node object: registration, labels and cordon are
// resources like files and units, and this package is their host. It uses the node's own credential
// for the API server. What it cannot read is state.Unknown, which is neither drift nor absence.
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
	// Client returns the API client to use; the Host does not close it.
	Client func(ctx context.Context) (*kube.Client, error)
	Node   string
	// Taints, as key=value:Effect, are set on a Node that Set registers. Capacity returns the
	// resources of such a Node until kubelet reports its own.
	Taints   []string
	Capacity func(ctx context.Context) (corev1.ResourceList, error)

	mu   sync.Mutex
	seen *view
}

// view is the result of one GET of the Node.
type view struct {
	node   kube.Node
	exists bool
	why    string // the error of reading it
}

// Forget drops the cached Node, so that the next Observe reads it again.
func (h *Host) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = nil
}

// Observe returns the resource at key, from one GET of the Node until Set or Forget.
func (h *Host) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	kind, name, err := parse(key)
	if err != nil {
		return nil, err
	}
	v, err := h.view(ctx)
	if err != nil {
		return nil, err
	}
	if v.why != "" {
		return state.Unknown{Of: key, Why: v.why}, nil
	}
	switch kind {
	case "registration":
		if name != h.Node {
			return nil, fmt.Errorf("internal error: %s is asked of Node %s", key, h.Node)
		}
		return h.registration(v), nil
	case "label":
		return label(v, name), nil
	default:
		return cordon(v), nil
	}
}

func parse(key state.Key) (kind, name string, err error) {
	text, ok := strings.CutPrefix(string(key), "node:")
	kind, name, _ = strings.Cut(text, ":")
	named := kind == "registration" || kind == "label"
	if !ok || !named && kind != "cordon" || named != (name != "") {
		return "", "", fmt.Errorf("internal error: %s is not part of a Node object", key)
	}
	return kind, name, nil
}

// view returns the Node. It returns only ctx's error: other errors are part of the view.
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
		return view{why: err.Error()}
	}
	return answer(client.Node(ctx, h.Node))
}

func answer(n kube.Node, err error) view {
	switch {
	case kube.NodeMissing(err):
		return view{}
	case err != nil:
		return view{why: err.Error()}
	}
	return view{node: n, exists: true}
}

// See provides Observe with an answer of kube.Client.Node.
func (h *Host) See(n kube.Node, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = new(answer(n, err))
}

// Set changes a thing of the Node to c.To. A Node has no files with content.
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
		return h.setLabel(ctx, client, to)
	case state.Cordon:
		return h.setCordon(ctx, client, to)
	default:
		return fmt.Errorf("internal error: %s is not part of a Node object", c.To.Key())
	}
}
