package kubetest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewKey returns a new private key of a machine.
func NewKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// Signed returns a certificate request signed with its key, in PEM.
func Signed(template x509.CertificateRequest, key crypto.Signer) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST",
		Bytes: must(x509.CreateCertificateRequest(rand.Reader, &template, key))})
}

// CSR returns kubelet's request with a token of groups.
func CSR(
	name, tokenID, node string, key crypto.Signer, groups ...string,
) *certificates.CertificateSigningRequest {
	return &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: Signed(x509.CertificateRequest{Subject: pkix.Name{
				CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key),
			SignerName: certificates.KubeAPIServerClientKubeletSignerName,
			Username:   "system:bootstrap:" + tokenID,
			Groups: slices.Concat([]string{"system:bootstrappers"}, groups,
				[]string{"system:authenticated"}),
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature,
				certificates.UsageClientAuth},
		},
	}
}

// File files a request.
func (c *Cluster) File(r *certificates.CertificateSigningRequest) {
	must(c.CertificatesV1().CertificateSigningRequests().
		Create(context.Background(), r, metav1.CreateOptions{}))
}

// Answer returns the decision on a request: Approved, Denied or "".
func (c *Cluster) Answer(name string) string {
	r := must(c.CertificatesV1().CertificateSigningRequests().
		Get(context.Background(), name, metav1.GetOptions{}))
	for _, condition := range r.Status.Conditions {
		return string(condition.Type)
	}
	return ""
}

// Ask files a request and waits for the answer.
func (c *Cluster) Ask(r *certificates.CertificateSigningRequest) string {
	c.File(r)
	Pass(time.Second)
	return c.Answer(r.Name)
}

// Issue adds a certificate, like kube-controller-manager.
func (c *Cluster) Issue(name string, certificate []byte) {
	client := c.CertificatesV1().CertificateSigningRequests()
	r := must(client.Get(context.Background(), name, metav1.GetOptions{}))
	r.Status.Certificate = certificate
	must(client.UpdateStatus(context.Background(), r, metav1.UpdateOptions{}))
	Pass(time.Second)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
