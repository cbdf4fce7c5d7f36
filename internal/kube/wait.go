package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch is opened anew after about this time, and the Node read again: a proxy that holds back a watch's events then delays them
// no longer than that.
const watchFor = 10 * time.Second

// WaitNode waits until done accepts the Node called name, which need not exist yet. It lists and watches only that Node, as a node's own
// credential must. What fails meanwhile is tried again, so ctx must have a deadline; when it ends, the error wraps
// the context's cause and the last failure, and the Node is the last one seen.
func (c *Client) WaitNode(ctx context.Context, name string, done func(Node) bool) (Node, error) {
	w := &wait{client: c, name: name, done: done}
	for failures := 0; ; {
		before := w.changes
		ok, err := w.round(ctx)
		if ok {
			return w.last, nil
		}
		if ctx.Err() == nil {
			w.err = err
		}
		if err == nil || w.changes > before {
			failures = 0
		}
		if err != nil {
			c.retry.pause(ctx, failures)
			failures++
		}
		if ctx.Err() != nil {
			return w.last, w.ended(ctx)
		}
	}
}

// wait is one WaitNode under way.
type wait struct {
	client  *Client
	name    string
	done    func(Node) bool
	last    Node
	err     error
	changes int
}

// ended is the error of a wait that took too long.
func (w *wait) ended(ctx context.Context) error {
	if w.err == nil {
		return fmt.Errorf("cannot wait any longer for Node %s: %w", w.name, context.Cause(ctx))
	}
	return fmt.Errorf("cannot wait any longer for Node %s: %w; the last attempt failed: %w", w.name, context.Cause(ctx), w.err)
}

// round reads the Node and then watches it for a while.
func (w *wait) round(ctx context.Context) (bool, error) {
	version, ok, err := w.list(ctx)
	if ok || err != nil {
		return ok, err
	}
	return w.watch(ctx, version)
}

func (w *wait) see(n Node) bool {
	if n.Name != w.name {
		return false
	}
	if n.ResourceVersion != w.last.ResourceVersion {
		w.changes++
	}
	w.last = n
	return w.done(n)
}

func (w *wait) list(ctx context.Context) (version string, ok bool, err error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	var list corev1.NodeList
	if err := w.client.rest.Get().Resource("nodes").Param("fieldSelector", "metadata.name="+w.name).Do(ctx).Into(&list); err != nil {
		return "", false, fmt.Errorf("cannot read Node %s: %w", w.name, plain(err))
	}
	for _, n := range list.Items {
		ok = ok || w.see(n)
	}
	if len(list.Items) == 0 {
		w.last = Node{}
	}
	return list.ResourceVersion, ok, nil
}

func (w *wait) watch(ctx context.Context, version string) (bool, error) {
	long := watchFor + rand.N(watchFor/5)
	ctx, cancel := context.WithTimeout(ctx, long+2*time.Second)
	defer cancel()
	events, err := w.client.rest.Get().Resource("nodes").
		Param("fieldSelector", "metadata.name="+w.name).
		Param("resourceVersion", version).
		Param("watch", "true").
		Param("timeoutSeconds", fmt.Sprint(int(long.Seconds()))).
		Watch(ctx)
	if err != nil {
		return false, fmt.Errorf("cannot watch Node %s: %w", w.name, plain(err))
	}
	defer events.Stop()
	opened := time.Now()
	for event := range events.ResultChan() {
		if w.event(event) {
			return true, nil
		}
	}
	if time.Since(opened) < time.Second {
		return false, fmt.Errorf("cannot watch Node %s: %w", w.name, errCut)
	}
	return false, nil
}

// errCut is a watch that ended at once, as when something on the way does not let answers stream.
var errCut = errors.New("the watch was cut off")

// event takes in one event of the watch; what it cannot use, the next list makes up for.
func (w *wait) event(e watch.Event) bool {
	n, ok := e.Object.(*corev1.Node)
	if !ok {
		return false
	}
	if e.Type == watch.Deleted {
		w.last = Node{}
		return false
	}
	return w.see(*n)
}
