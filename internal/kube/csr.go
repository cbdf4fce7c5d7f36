package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// CSRState is how far a certificate request has come.
type CSRState string

// The states of a certificate request. One that is approved and not issued waits for the signer.
const (
	CSRPending  CSRState = "pending"
	CSRApproved CSRState = "approved"
	CSRIssued   CSRState = "issued"
	CSRDenied   CSRState = "denied"
	CSRFailed   CSRState = "failed"
)

// CSR is a request of a kubelet for a client certificate.
type CSR struct {
	Name    string
	Created time.Time
	State   CSRState
	// Reason and Message are those of the condition that decided.
	Reason, Message string
	// User and Groups are who asked.
	User   string
	Groups []string
}

// CSRs returns the requests for a client certificate of the node called name, the newest first. A bootstrap token may list them, and so may
// a node.
func (c *Client) CSRs(ctx context.Context, name string) ([]CSR, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	var found []CSR
	for more := ""; ; {
		var page certificatesv1.CertificateSigningRequestList
		err := c.rest.Get().AbsPath("/apis/certificates.k8s.io/v1/certificatesigningrequests").
			Param("fieldSelector", "spec.signerName="+certificatesv1.KubeAPIServerClientKubeletSignerName).
			Param("limit", "500").Param("continue", more).Do(ctx).Into(&page)
		if err != nil {
			return nil, fmt.Errorf("cannot list the certificate requests: %w", plain(err))
		}
		for _, r := range page.Items {
			if commonName(r.Spec.Request) == "system:node:"+name {
				found = append(found, newCSR(r))
			}
		}
		if more = page.Continue; more == "" {
			break
		}
	}
	slices.SortFunc(found, func(a, b CSR) int { return b.Created.Compare(a.Created) })
	return found, nil
}

// commonName is the subject that a PEM certificate request asks for; "" when it cannot be read.
func commonName(request []byte) string {
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

func newCSR(r certificatesv1.CertificateSigningRequest) CSR {
	csr := CSR{Name: r.Name, Created: r.CreationTimestamp.Time, State: CSRPending, User: r.Spec.Username, Groups: r.Spec.Groups}
	states := map[certificatesv1.RequestConditionType]CSRState{
		certificatesv1.CertificateApproved: CSRApproved,
		certificatesv1.CertificateDenied:   CSRDenied,
		certificatesv1.CertificateFailed:   CSRFailed,
	}
	for _, condition := range r.Status.Conditions {
		state, known := states[condition.Type]
		if !known || csr.State == CSRDenied || csr.State == CSRFailed {
			continue
		}
		csr.State, csr.Reason, csr.Message = state, condition.Reason, condition.Message
	}
	if csr.State == CSRApproved && len(r.Status.Certificate) > 0 {
		csr.State = CSRIssued
	}
	return csr
}
