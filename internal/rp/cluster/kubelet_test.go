package cluster

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
)

// requestFor returns a certificate request with its certificate, approved for a reason.
func requestFor(leaf *x509.Certificate, reason string) *certificates.CertificateSigningRequest {
	r := csr("csr", "", "")
	r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})
	r.Status.Conditions = []certificates.CertificateSigningRequestCondition{
		{Type: certificates.CertificateApproved, Reason: reason},
	}
	return r
}

func TestProvesKubelet(t *testing.T) {
	ca, other := machinekeytest.NewCA(), machinekeytest.NewCA()
	_, leaf := ca.Kubelet("n", false)
	_, neighbour := ca.Kubelet("o", false)
	_, foreign := other.Kubelet("n", false)
	_, again := ca.Kubelet("n", false)
	const autoApproved = "AutoApproved"
	for name, tt := range map[string]struct {
		leaf, requested *x509.Certificate
		reason, why     string
		listed          string // "" lists the certificate
	}{
		"the node's":          {leaf, leaf, approvedReason, "", ""},
		"another node's":      {neighbour, neighbour, approvedReason, "not of the node", ""},
		"of another CA":       {foreign, foreign, approvedReason, "unknown authority", ""},
		"approved by another": {leaf, leaf, autoApproved, "knows no request", ""},
		"without a request":   {again, leaf, approvedReason, "knows no request", ""},
		"revoked":             {leaf, leaf, approvedReason, "refuses writes", newer},
	} {
		t.Run(name, func(t *testing.T) {
			c := kubetest.New("c", requestFor(tt.requested, tt.reason), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: clientCA, Namespace: "kube-system"},
				Data:       map[string]string{clientCAFile: string(ca.PEM())},
			}, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: revokedName, Namespace: "kube-system"},
				Data: map[string]string{
					"n": cmp.Or(tt.listed, flexnode.CertificateID(tt.leaf.Raw)),
				},
			})
			source := &fakeSource{clusters: map[string]*fakeCluster{"s/g/c": {c}}}
			m := &Manager{Source: source, Dial: source.dial}
			at := flexnode.Cluster{ID: "/subscriptions/s/resourceGroups/g/providers/p/t/c"}
			err := m.ProvesKubelet(t.Context(), at, "n", tt.leaf)
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("got %v", err)
			}
		})
	}
}
