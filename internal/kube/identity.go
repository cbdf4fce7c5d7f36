package kube

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrUnauthorized says that the API server does not accept the credential (401).
var ErrUnauthorized = errors.New("the API server does not accept the credential (401)")

// WhoAmI proves the client's credential with one request and returns the user name that the API
// server sees (SelfSubjectReview); "" when it recognises somebody whom it does not tell. The error
// is ErrUnauthorized when the credential is not accepted.
func (c *Client) WhoAmI(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{
		APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview",
	}}
	request, err := withBody(c.authentication.Post().Resource("selfsubjectreviews"), review)
	if err != nil {
		return "", err
	}
	err = request.Do(ctx).Into(review)
	if apierrors.IsNotFound(err) { // before Kubernetes 1.28
		_, err = c.core.Get().AbsPath("/version").DoRaw(ctx)
	}
	switch name := review.Status.UserInfo.Username; {
	case apierrors.IsUnauthorized(err), err == nil && name == anonymous:
		return "", ErrUnauthorized
	case apierrors.IsForbidden(err):
		return "", nil // whoever is forbidden something has been recognised
	case err != nil:
		return "", fmt.Errorf("cannot prove the credential to the API server: %w", err)
	default:
		return name, nil
	}
}

// anonymous is the user name of whoever shows no credential.
const anonymous = "system:anonymous"
