package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// CSR is a request of kubelet for its client certificate.
type CSR struct {
	Name string
	// State is pending, approved, denied, failed or issued; Reason is why it was denied or failed.
	State, Reason string
}

// CSRs lists the requests for the client certificate of a node, the latest last.
func (c *Client) CSRs(ctx context.Context, node string) ([]CSR, error) {
	list, err := get[certificatesv1.CertificateSigningRequestList](ctx,
		c.certificates.Get().Resource("certificatesigningrequests"), "list the certificate requests")
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
