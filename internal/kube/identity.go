package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrUnauthorized says that the API server does not accept the credential (401).
var ErrUnauthorized = errors.New("the API server does not accept the credential (401)")

// WhoAmI proves the client's credential with one request and returns the user name that the API
// server sees (SelfSubjectReview); "" when it recognises the caller and does not return the name.
// The error is ErrUnauthorized when the credential is not accepted.
func (c *Client) WhoAmI(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	err := c.core.Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").Body(review).
		Do(ctx).Into(review)
	switch name := review.Status.UserInfo.Username; {
	case apierrors.IsUnauthorized(err), err == nil && name == anonymous:
		return "", ErrUnauthorized
	case apierrors.IsForbidden(err):
		return "", nil // a forbidden caller has been recognised
	case err != nil:
		return "", fmt.Errorf("cannot prove the credential to the API server: %w", err)
	default:
		return name, nil
	}
}

const anonymous = "system:anonymous" // the user name of a caller that shows no credential

// Access is something that one may do in a cluster, such as create nodes.
type Access = authorizationv1.ResourceAttributes

// May asks whether the client may do something (SelfSubjectAccessReview), and why.
func (c *Client) May(ctx context.Context, a Access) (allowed bool, reason string, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a},
	}
	err = c.core.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(review).
		Do(ctx).Into(review)
	if err != nil {
		return false, "", fmt.Errorf("cannot ask the API server what the identity may do: %w", err)
	}
	return review.Status.Allowed, review.Status.Reason, nil
}

// CSR is a request of kubelet for its client certificate.
type CSR struct {
	Name string
	// State is pending, approved, denied, failed or issued; Reason is why it was denied or failed.
	State, Reason string
}

// CSRs lists the requests for the client certificate of a node, the latest last.
func (c *Client) CSRs(ctx context.Context, node string) ([]CSR, error) {
	request := c.core.Get().AbsPath("/apis/certificates.k8s.io/v1/certificatesigningrequests")
	list, err := get[certificatesv1.CertificateSigningRequestList](ctx, request,
		"list the certificate requests")
	if err != nil {
		return nil, err
	}
	// The API server orders by name, and the names are random.
	slices.SortStableFunc(list.Items, func(a, b certificatesv1.CertificateSigningRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var found []CSR
	for _, item := range list.Items {
		forKubelet := item.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName
		if forKubelet && subject(item.Spec.Request) == "system:node:"+node {
			found = append(found, csr(item))
		}
	}
	return found, nil
}

func subject(request []byte) string {
	block, _ := pem.Decode(request)
	if block == nil {
		return ""
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return parsed.Subject.CommonName
}

func csr(item certificatesv1.CertificateSigningRequest) CSR {
	r := CSR{Name: item.Name, State: "pending"}
	for _, c := range item.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			r.State = "approved"
		case certificatesv1.CertificateDenied:
			return CSR{item.Name, "denied", c.Message}
		case certificatesv1.CertificateFailed:
			return CSR{item.Name, "failed", c.Message}
		}
	}
	if len(item.Status.Certificate) > 0 {
		r.State = "issued"
	}
	return r
}
