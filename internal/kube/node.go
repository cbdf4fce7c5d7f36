package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Node is a core/v1 Node.
type Node = corev1.Node

// Ready returns the Ready condition of a Node; of one that has none yet, Unknown with a message that says so.
func Ready(n Node) corev1.NodeCondition {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "kubelet has not reported yet"}
}

// Node returns the Node called name; NotFound tells that there is none.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	var n Node
	err := c.rest.Get().Resource("nodes").Name(name).Do(ctx).Into(&n)
	if err != nil {
		return Node{}, fmt.Errorf("cannot read Node %s: %w", name, plain(err))
	}
	return n, nil
}

// PatchLabels sets labels of a Node; a nil value removes the label.
func (c *Client) PatchLabels(ctx context.Context, name string, labels map[string]*string) error {
	patch := map[string]any{"metadata": map[string]any{"labels": labels}}
	if err := c.patchNode(ctx, name, patch); err != nil {
		return fmt.Errorf("cannot label Node %s: %w", name, err)
	}
	return nil
}

// Cordon keeps new pods away from a Node.
func (c *Client) Cordon(ctx context.Context, name string) error {
	if err := c.patchNode(ctx, name, unschedulable(true)); err != nil {
		return fmt.Errorf("cannot cordon Node %s: %w", name, err)
	}
	return nil
}

// Uncordon lets new pods come again.
func (c *Client) Uncordon(ctx context.Context, name string) error {
	if err := c.patchNode(ctx, name, unschedulable(nil)); err != nil {
		return fmt.Errorf("cannot uncordon Node %s: %w", name, err)
	}
	return nil
}

func unschedulable(value any) map[string]any {
	return map[string]any{"spec": map[string]any{"unschedulable": value}}
}

// patchNode applies a JSON merge patch (RFC 7396).
func (c *Client) patchNode(ctx context.Context, name string, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	ctx, cancel := brief(ctx)
	defer cancel()
	err = plain(c.rest.Patch(types.MergePatchType).Resource("nodes").Name(name).Body(body).Do(ctx).Error())
	if apierrors.IsForbidden(err) {
		return &Forbidden{Verb: "patch", Node: name, Remedy: "the cluster's admission (NodeRestriction) keeps nodes from changing this; have an administrator do it with kubectl", Err: err}
	}
	return err
}

// DeleteNode deletes the Node called name. That there is none is as good. When the credential may not, the error is a *Forbidden.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	ctx, cancel := brief(ctx)
	defer cancel()
	err := plain(c.rest.Delete().Resource("nodes").Name(name).Do(ctx).Error())
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		remedy := fmt.Sprintf("have an administrator run `kubectl delete node %s`; with packaging/kubernetes/rbac.yaml applied, nodes delete themselves", name)
		err = &Forbidden{Verb: "delete", Node: name, Remedy: remedy, Err: err}
	}
	return fmt.Errorf("cannot delete Node %s: %w", name, err)
}

// Forbidden is an answer 403: the credential is accepted, but may not do this.
type Forbidden struct {
	// Verb is what was asked for, as in RBAC.
	Verb   string
	Node   string
	Remedy string
	Err    error
}

// Error says what the operator has to do.
func (f *Forbidden) Error() string {
	return fmt.Sprintf("this machine's credential may not %s Node %s%s; %s", f.Verb, f.Node, f.why(), f.Remedy)
}

// why is what the API server says, unless that is only that RBAC has no rule.
func (f *Forbidden) why() string {
	status, ok := errors.AsType[*apierrors.StatusError](f.Err)
	if !ok || status.ErrStatus.Message == "" || f.Verb == "delete" {
		return ""
	}
	return " (" + status.ErrStatus.Message + ")"
}

// Unwrap returns the API server's answer.
func (f *Forbidden) Unwrap() error { return f.Err }
