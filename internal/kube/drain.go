package kube

import (
	"context"
	"encoding/json"
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
	// Retry is the pause after an eviction that a disruption budget refuses; 0 is 2 s.
	Retry time.Duration
}

// blocked is a pod that is still there, and why.
type blocked struct{ pod, reason string }

// Drain evicts the Node's pods and waits until they are gone. Pods of DaemonSets and static pods stay. Disruption budgets are
// respected: an eviction that they refuse is tried again until ctx ends. The error names the pods that are left.
func (c *Client) Drain(ctx context.Context, name string, o DrainOptions) error {
	if o.Retry == 0 {
		o.Retry = 2 * time.Second
	}
	var left []blocked
	for {
		pods, err := c.pods(ctx, name)
		if err != nil && ctx.Err() != nil && len(left) > 0 {
			return drainError(left) // the pods are what is in the way, not the question that the deadline cut short
		}
		if err != nil {
			return err
		}
		left, err = c.evictAll(ctx, pods, o, left)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return drainError(left)
		case <-time.After(o.Retry):
		}
	}
}

// evictAll asks for the eviction of every pod that is to go, and returns those that are still there. A pod that may not be
// moved is an error at once. before has the reasons of the last round, which stand where ctx ends in the middle of this one.
func (c *Client) evictAll(ctx context.Context, pods []corev1.Pod, o DrainOptions, before []blocked) ([]blocked, error) {
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
	switch {
	case mirror, owner != nil && owner.Kind == "DaemonSet":
		return false, ""
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return true, ""
	case owner == nil && !o.Force:
		return false, "has no controller that would make it again elsewhere"
	case !o.DeleteEmptyDir && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }):
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
	body, err := json.Marshal(eviction)
	if err == nil {
		err = c.core.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
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

func (c *Client) pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.core.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+node).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("cannot list the pods of Node %s: %w", node, err)
	}
	return list.Items, nil
}
