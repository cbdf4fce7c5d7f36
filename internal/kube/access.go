package kube

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Access is something that one may do in a cluster, such as create nodes.
type Access struct{ Verb, Group, Resource string }

// May tells whether the client's credential may do something (SelfSubjectAccessReview), and why the
// API server says so.
func (c *Client) May(ctx context.Context, a Access) (allowed bool, reason string, err error) {
	wanted := &authorizationv1.ResourceAttributes{
		Verb: a.Verb, Group: a.Group, Resource: a.Resource,
	}
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview",
		},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: wanted},
	}
	request, err := withBody(c.authorization.Post().Resource("selfsubjectaccessreviews"), review)
	if err != nil {
		return false, "", err
	}
	if err := request.Do(ctx).Into(review); err != nil {
		return false, "", fmt.Errorf("cannot ask the API server what the identity may do: %w", err)
	}
	return review.Status.Allowed, review.Status.Reason, nil
}
