package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DrainOptions says which pods may be moved away.
type DrainOptions struct {
	// DeleteEmptyDir moves pods too that keep data on this node in an emptyDir; the data is lost.
	DeleteEmptyDir bool
	// Force moves pods too that no controller will make again elsewhere.
	Force bool
	// Retry is about the pause after an eviction that a disruption budget refuses; 0 is 2 s.
	Retry time.Duration
	// Progress is told of each round; nil tells nobody.
	Progress func()
}

// blocked is a pod that is still there, and why.
type blocked struct{ pod, reason string }

// Drain evicts the Node's pods and waits until they are gone. Pods of DaemonSets and static pods
// remain. Disruption budgets are respected: an eviction that they refuse is tried again until ctx
// ends. The error names the pods that are left.
func (c *Client) Drain(ctx context.Context, name string, o DrainOptions) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if o.Retry == 0 {
		o.Retry = 2 * time.Second
	}
	var left []blocked
	for {
		if o.Progress != nil {
			o.Progress()
		}
		pods, err := c.PodsOn(ctx, name)
		if err != nil && ctx.Err() != nil && len(left) > 0 {
			return drainError(left) // what is in the way, not the question that was cut short
		}
		if err != nil {
			return err
		}
		left, err = c.evictAll(ctx, pods, o, left)
		if err != nil || len(left) == 0 {
			return err
		}
		if !pause(ctx, o.Retry) {
			return drainError(left)
		}
	}
}

// evictAll asks for the eviction of every pod that is to go, and returns those that are still
// there. A pod that may not be moved is an error at once. before has the reasons of the last round,
// which stand where ctx ends in the middle of this one.
func (c *Client) evictAll(ctx context.Context, pods []corev1.Pod, o DrainOptions,
	before []blocked) ([]blocked, error) {
	var left, kept []blocked
	for _, pod := range pods {
		full := pod.Namespace + "/" + pod.Name
		move, reason := movable(pod, o)
		switch {
		case !move && reason != "":
			kept = append(kept, blocked{full, reason})
		case !move:
		case pod.DeletionTimestamp != nil:
			left = append(left, blocked{full, "is ending"})
		default:
			reason := c.evict(ctx, pod)
			if ctx.Err() != nil && len(before) > 0 {
				return before, nil
			}
			if reason != "" {
				left = append(left, blocked{full, reason})
			}
		}
	}
	if len(kept) > 0 {
		return nil, drainError(kept)
	}
	return left, nil
}

// movable tells whether a pod is to be evicted; if not, and it is in the way, why not.
func movable(pod corev1.Pod, o DrainOptions) (bool, string) {
	owner := metav1.GetControllerOf(&pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	hasEmptyDir := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.EmptyDir != nil
	})
	switch {
	case mirror, owner != nil && owner.Kind == "DaemonSet":
		return false, ""
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return true, ""
	case owner == nil && !o.Force:
		return false, "has no controller that would make it again elsewhere"
	case !o.DeleteEmptyDir && hasEmptyDir:
		return false, "keeps data in an emptyDir"
	}
	return true, ""
}

// evict asks for one eviction and returns why the pod is still there; "" when it is gone.
func (c *Client) evict(ctx context.Context, pod corev1.Pod) string {
	eviction := &policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
	}
	request, err := withBody(c.core.Post().Namespace(pod.Namespace).Resource("pods").
		Name(pod.Name).SubResource("eviction"), eviction)
	if err == nil {
		err = request.MaxRetries(0).Do(ctx).Error() // Drain tries again, and says why meanwhile
	}
	switch {
	case err == nil:
		return "is ending"
	case apierrors.IsNotFound(err):
		return ""
	case apierrors.IsTooManyRequests(err):
		return "a PodDisruptionBudget does not let it go now: " + err.Error()
	default:
		return err.Error()
	}
}

func drainError(left []blocked) error {
	var lines []string
	for _, b := range left {
		lines = append(lines, b.pod+" "+b.reason)
	}
	return fmt.Errorf("cannot move these pods away: %s", strings.Join(lines, "; "))
}

// PodsOn lists the pods that are bound to a Node.
func (c *Client) PodsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.core.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+node).
		Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("cannot list the pods of Node %s: %w", node, err)
	}
	return list.Items, nil
}
