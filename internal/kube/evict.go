package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// eviction is the API server's answer: accepted, already gone, or blocked for the moment.
type eviction struct {
	accepted, gone bool
	blocked        string
}

// evict asks for one pod to go, by the eviction API, which honours disruption budgets. Only that very pod is meant, not one that came in its place
// under the same name. An error is one that trying again would not mend.
func (c *Client) evict(ctx context.Context, p Pod, grace time.Duration) (eviction, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	request := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
	}
	if grace > 0 {
		seconds := int64(grace.Round(time.Second).Seconds())
		request.DeleteOptions.GracePeriodSeconds = &seconds
	}
	// A refusal by a disruption budget may ask for a long pause (Retry-After); other pods need not wait for it.
	err := plain(c.rest.Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").MaxRetries(0).Body(request).Do(ctx).Error())
	switch {
	case err == nil:
		return eviction{accepted: true}, nil
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return eviction{gone: true}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return eviction{accepted: true}, nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return eviction{}, fmt.Errorf("cannot evict pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return eviction{blocked: reason(err)}, nil
}

// reason is why an eviction was not accepted: what a disruption budget says, else what the API server says.
func reason(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok && cause.Message != "" {
		return cause.Message
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status.ErrStatus.Message
	}
	return err.Error()
}
