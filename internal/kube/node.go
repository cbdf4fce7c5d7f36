package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Node is a core/v1 Node.
type Node = corev1.Node

// Ready returns the Node's Ready condition; one without a status if kubelet has not reported yet.
func Ready(n Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Message: "kubelet has not reported yet"}
}

// Pressure returns kubelet's conditions of short resources, such as DiskPressure.
func Pressure(n Node) (short []string) {
	for _, c := range n.Status.Conditions {
		if strings.HasSuffix(string(c.Type), "Pressure") && c.Status == corev1.ConditionTrue {
			short = append(short, string(c.Type))
		}
	}
	return short
}

// Unpressed reports whether kubelet has reported for a while that no resource is short. The first
// status after its start may say so wrongly, until the second, ten seconds later.
func Unpressed(n Node) bool {
	for _, c := range n.Status.Conditions {
		if strings.HasSuffix(string(c.Type), "Pressure") && (c.Status != corev1.ConditionFalse ||
			time.Since(c.LastTransitionTime.Time).Abs() < 15*time.Second) {
			return false
		}
	}
	return Ready(n).Status != ""
}

// Node returns the Node object.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	return get[Node](ctx, c.core.Get().Resource("nodes").Name(name), "read Node %s", name)
}

// NodeMissing reports whether the API server answers that an object does not exist. A 404 of
// something else at its address, such as a load balancer, does not count.
func NodeMissing(err error) bool {
	return apierrors.IsNotFound(err) &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Answered reports whether an error is an answer of the API server, such as a refusal.
func Answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < 500
}

// Unavailable reports whether an error means that the API server cannot serve requests now: it does
// not answer, is overloaded (429) or fails (5xx), or another server answers for it.
func Unavailable(err error) bool {
	return err != nil && (!Answered(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse))
}

// The pauses of a wait: short at first, then longer, to spare a cluster that is down.
const firstPause, maxPause = 50 * time.Millisecond, time.Second

// WaitNode returns the Node as soon as until holds for it. It also waits for a missing Node and a
// silent server, and calls asked after each request. An error has the Node's last state.
func (c *Client) WaitNode(
	ctx context.Context, name string, asked func(), until func(Node) bool,
) (Node, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	var last Node
	var lastErr error
	for pauses := (wait.Backoff{Base: firstPause, Max: maxPause}); ; {
		n, err := c.Node(ctx, name)
		asked()
		if err == nil {
			if last = n; until(n) {
				return n, nil
			}
		}
		if ctx.Err() == nil {
			lastErr = err
		}
		if !wait.Sleep(ctx, pauses.Next()) {
			return last, waitError(ctx, name, last, lastErr)
		}
	}
}

func waitError(ctx context.Context, name string, last Node, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", cause, err)
	case last.Name == "":
		return fmt.Errorf("cannot find Node %s: %w", name, cause)
	}
	return fmt.Errorf("Node %s is not Ready (%s): %w", name, Ready(last).Message, cause)
}

// CreateNode registers a Node as kubelet would; an existing one is left unchanged. A node may set
// its own taints only now (NodeRestriction).
func (c *Client) CreateNode(ctx context.Context, n Node) error {
	if len(n.Spec.PodCIDRs) > 0 {
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0] // the API server requires both to agree
	}
	err := c.core.Post().Resource("nodes").Body(&n).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot register Node %s: %w", n.Name, err)
	}
	return nil
}

// PatchLabels sets labels; a nil value removes one.
func (c *Client) PatchLabels(ctx context.Context, name string, labels map[string]*string) error {
	patch := map[string]any{"metadata": map[string]any{"labels": labels}}
	return c.patch(ctx, name, patch, "label")
}

// cordoned is the annotation of a Node that this program has cordoned: its machine may leave, or be
// installed again.
const cordoned = "aks-flex-node/cordoned"

// Cordon marks the Node unschedulable, or schedulable again.
func (c *Client) Cordon(ctx context.Context, name string, on bool) error {
	verb, annotation, unschedulable := "uncordon", any(nil), any(nil)
	if on {
		verb, annotation, unschedulable = "cordon", "true", true
	}
	return c.patch(ctx, name, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{cordoned: annotation}},
		"spec":     map[string]any{"unschedulable": unschedulable},
	}, verb)
}

// CordonLeft cordons the Node of a machine that leaves, unless others than we have cordoned it, or
// takes any cordon of ours back, once the Node has a machine again.
func (c *Client) CordonLeft(ctx context.Context, name string, on, ours bool) error {
	n, err := c.Node(ctx, name)
	_, is := n.Annotations[cordoned]
	if err != nil || on && n.Spec.Unschedulable && !ours || !on && !is {
		return err
	}
	return c.Cordon(ctx, name, on)
}

// touched is the annotation with the time at which a node last tested writes to the cluster.
const touched = "aks-flex-node/touched"

// TouchNode changes an annotation of the Node. It writes, as kubelet does with its lease: a no-op
// request and a dry run succeed even if etcd accepts no writes.
func (c *Client) TouchNode(ctx context.Context, name string, at time.Time) error {
	stamp := map[string]string{touched: at.UTC().Format(time.RFC3339Nano)}
	patch := map[string]any{"metadata": map[string]any{"annotations": stamp}}
	return c.patch(ctx, name, patch, "annotate")
}

func (c *Client) patch(ctx context.Context, name string, patch map[string]any, verb string) error {
	body, _ := json.Marshal(patch) // texts can be encoded
	err := c.core.Patch(types.MergePatchType).Resource("nodes").Name(name).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("cannot %s Node %s: %w", verb, name, err)
	}
	return nil
}

// DeleteNode deletes the Node object, if it exists. Kubernetes lets a node delete itself only if
// its operator has allowed it (manifests/rbac-leave.yaml).
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	err := c.core.Delete().Resource("nodes").Name(name).Do(ctx).Error()
	switch {
	case err == nil || NodeMissing(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cannot delete Node %s: this node may not delete itself; ask the "+
			"cluster's operator to run `kubectl delete node %s` (manifests/rbac-leave.yaml "+
			"lets nodes with a certificate do it)", name, name)
	}
	return fmt.Errorf("cannot delete Node %s: %w; the cluster's operator can run "+
		"`kubectl delete node %s`", name, err, name)
}

// watchFor bounds one watch of the Node: the API server ends it then, and the caller restarts it.
const watchFor = 5 * time.Minute

// metadataOnly requests events with the metadata of a Node, without its spec and status (Kubernetes
// API concepts, "Metadata-only fetches"). longestEvent bounds one, in bytes.
const (
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	longestEvent = 4 << 20
)

var errWatchEnded = errors.New("the watch has ended")

// WaitDeleted waits until the Node object is deleted. It watches instead of polling, so that an
// idle wait costs the API server nothing. If the Node does not exist, NodeMissing holds for the
// error; a watch that ends otherwise is an error too.
func (c *Client) WaitDeleted(ctx context.Context, name string) error {
	n, err := c.Node(ctx, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, watchFor+requestTimeout)
	defer cancel()
	stream, err := c.watch.Get().Resource("nodes").SetHeader("Accept", metadataOnly).
		Param("watch", "true").
		Param("fieldSelector", "metadata.name="+name).
		Param("resourceVersion", n.ResourceVersion). // changes from now on
		Param("timeoutSeconds", strconv.Itoa(int(watchFor.Seconds()))).Stream(ctx)
	if err != nil {
		return fmt.Errorf("cannot watch Node %s: %w", name, err)
	}
	defer stream.Close()
	return untilDeleted(stream)
}

func untilDeleted(stream io.Reader) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, longestEvent)
	for lines.Scan() {
		var event metav1.WatchEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return fmt.Errorf("cannot read an event of the watch: %w", err)
		}
		if event.Type == string(watch.Deleted) {
			return nil
		}
	}
	return errors.Join(errWatchEnded, lines.Err())
}

// TaintOf parses a taint of a valid configuration: key=value:Effect or key:Effect.
func TaintOf(text string) corev1.Taint {
	pair, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(pair, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

const longestWait = time.Hour // bounds a wait whose context has no deadline

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, longestWait,
		errors.New("gave up after "+longestWait.String()))
}

// ReadySince reports whether the Node is Ready according to a kubelet started at the given time.
// The previous kubelet's last report must not count. Heartbeats have whole seconds.
func ReadySince(started time.Time) func(Node) bool {
	return func(n Node) bool {
		ready := Ready(n)
		return ready.Status == "True" &&
			!ready.LastHeartbeatTime.Time.Before(started.Truncate(time.Second))
	}
}
