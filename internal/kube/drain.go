package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// DrainOptions selects the pods that a drain may evict.
type DrainOptions struct {
	// DeleteEmptyDir evicts pods that keep data on this node in an emptyDir; the data is lost.
	DeleteEmptyDir bool
	Force          bool              // evicts pods that no controller will create again elsewhere
	Partial        bool              // evicts the other pods even if some may not be evicted
	Retry          time.Duration     // the average pause between two rounds; 0 is 2 s
	Progress       func()            // called before each request; may be nil
	Blocked        func(*DrainError) // receives the remaining pods after each round; may be nil
	dryRun         bool              // asks the API server whether it would evict a pod
}

// Blocked is a pod that blocks a drain.
type Blocked struct {
	Pod string // namespace/name
	// Message is the reason. Nodes cannot list PodDisruptionBudgets: the API server names the budget.
	Message string
	err     error // the answer to the eviction
}

// DrainError lists the pods that block a drain.
type DrainError struct{ Pods []Blocked }

func (e *DrainError) Error() string {
	lines := make([]string, len(e.Pods))
	for i, b := range e.Pods {
		lines[i] = b.Pod + " " + b.Message
	}
	return "cannot evict these pods: " + strings.Join(lines, "; ")
}

// ErrCannotAsk reports that an admission webhook of the cluster refuses dry runs of evictions.
var ErrCannotAsk = errors.New("cannot check whether the pods can be evicted")

// Drain evicts the Node's pods and waits until they are gone. It leaves pods of DaemonSets and
// static pods. It retries refused evictions and unanswered requests until ctx ends. The error is a
// *DrainError if pods block it.
func (c *Client) Drain(ctx context.Context, name string, o DrainOptions) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	var left []Blocked
	for {
		o.progress()
		pods, err := c.podsOn(ctx, name, "")
		switch {
		case err == nil:
			move, kept := o.sort(pods)
			if len(kept) == 0 || o.Partial {
				left = c.evictAll(ctx, move, o, left)
			}
			switch {
			case len(kept) > 0 && (!o.Partial || len(left) == 0):
				return &DrainError{kept}
			case len(left) == 0:
				return nil
			}
			if o.Blocked != nil {
				o.Blocked(&DrainError{left})
			}
		case !Unavailable(err):
			return err
		}
		if wait.Sleep(ctx, wait.Jitter(cmp.Or(o.Retry, 2*time.Second))) {
			continue
		}
		if len(left) > 0 {
			return &DrainError{left}
		}
		return err
	}
}

// CanDrain reports whether a drain could evict every pod of the Node now. It evicts none, but
// requests dry runs. The error is a *DrainError if pods block the drain, and ErrCannotAsk if
// nothing is known to block it but a webhook refuses dry runs.
func (c *Client) CanDrain(ctx context.Context, name string, o DrainOptions) error {
	pods, err := c.podsOn(ctx, name, "")
	if err != nil {
		return err
	}
	move, kept := o.sort(pods)
	if len(kept) > 0 {
		return &DrainError{kept}
	}
	o.dryRun = true
	var unasked error
	left := slices.DeleteFunc(c.evictAll(ctx, move, o, nil), func(b Blocked) bool {
		switch {
		case apierrors.IsBadRequest(b.err): // k8s.io/apiserver, NewDryRunUnsupportedErr
			unasked = fmt.Errorf("%w: %w", ErrCannotAsk, b.err)
		case Unavailable(b.err) && !apierrors.HasStatusCause(b.err, policyv1.DisruptionBudgetCause):
			unasked = b.err
		default:
			return false
		}
		return true
	})
	if len(left) > 0 {
		return &DrainError{left}
	}
	return unasked
}

func (o DrainOptions) progress() {
	if o.Progress != nil {
		o.Progress()
	}
}

func (o DrainOptions) sort(pods []corev1.Pod) (move []corev1.Pod, kept []Blocked) {
	for _, pod := range pods {
		switch {
		case stays(pod):
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
			move = append(move, pod)
		case metav1.GetControllerOf(&pod) == nil && !o.Force:
			kept = append(kept, Blocked{Pod: full(pod),
				Message: "has no controller that would recreate it elsewhere"})
		case !o.DeleteEmptyDir && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.EmptyDir != nil
		}):
			kept = append(kept, Blocked{Pod: full(pod), Message: "has data in an emptyDir volume"})
		default:
			move = append(move, pod)
		}
	}
	return move, kept
}

func full(pod corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// stays reports whether a drain leaves a pod: a static one, or one of a DaemonSet.
func stays(pod corev1.Pod) bool {
	owner := metav1.GetControllerOf(&pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || owner != nil && owner.Kind == "DaemonSet"
}

// evictAll requests the eviction of pods, and returns those that remain. previous is the result of
// the last round, which it returns if ctx ends in this one.
func (c *Client) evictAll(
	ctx context.Context, pods []corev1.Pod, o DrainOptions, previous []Blocked,
) []Blocked {
	var left []Blocked
	for _, pod := range pods {
		b := Blocked{Pod: full(pod), Message: "is terminating"}
		if pod.DeletionTimestamp == nil {
			o.progress()
			err := c.evict(ctx, pod, o.dryRun)
			switch {
			case ctx.Err() != nil && len(previous) > 0:
				return previous
			case apierrors.IsNotFound(err), err == nil && o.dryRun:
				continue
			case err != nil:
				b.Message, b.err = err.Error(), err
				// The API server names the budget in the message of the cause ("The disruption budget
				// NAME needs ...") and nowhere else.
				if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
					b.Message = "is protected by a PodDisruptionBudget: " + cause.Message
				}
			}
		}
		left = append(left, b)
	}
	return left
}

func (c *Client) evict(ctx context.Context, pod corev1.Pod, dryRun bool) error {
	eviction := &policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
	}
	request := c.core.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("eviction").Body(eviction)
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	return request.MaxRetries(0).Do(ctx).Error() // the next round tries again
}

// PodsOn lists the pods bound to a Node, from the API server's cache: a consistent read makes older
// API servers read all pods of the cluster from etcd.
func (c *Client) PodsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	return c.podsOn(ctx, node, "0")
}

// podsOn lists the pods of a Node, at least as new as a resource version; "" is the newest.
func (c *Client) podsOn(ctx context.Context, node, version string) ([]corev1.Pod, error) {
	request := c.core.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+node).
		Param("resourceVersion", version)
	list, err := get[corev1.PodList](ctx, request, "list the pods of Node %s", node)
	return list.Items, err
}
