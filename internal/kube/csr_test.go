package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type signingRequest = certificatesv1.CertificateSigningRequest

// request is a CSR for the client certificate of a node.
func request(t *testing.T, name, node string, minute int,
	c ...certificatesv1.RequestConditionType) signingRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	made := time.Date(2026, 11, 21, 12, minute, 0, 0, time.UTC)
	r := signingRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(made)},
	}
	r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	for _, kind := range c {
		condition := certificatesv1.CertificateSigningRequestCondition{Type: kind, Message: "so"}
		r.Status.Conditions = append(r.Status.Conditions, condition)
	}
	return r
}

// The API server lists by name; the latest request is the one that tells what kubelet waits for.
func TestCSRs(t *testing.T) {
	issued := request(t, "csr-b", "edge-1", 3, certificatesv1.CertificateApproved)
	issued.Status.Certificate = []byte("PEM")
	serving := request(t, "csr-c", "edge-1", 9)
	serving.Spec.SignerName = certificatesv1.KubeletServingSignerName
	broken, garbled := request(t, "csr-d", "edge-1", 9), request(t, "csr-e", "edge-1", 9)
	broken.Spec.Request = []byte("no PEM")
	garbled.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"})
	list := certificatesv1.CertificateSigningRequestList{Items: []signingRequest{
		request(t, "csr-a", "edge-1", 5), issued, serving, broken, garbled,
		request(t, "csr-f", "edge-1", 1, certificatesv1.CertificateDenied),
		request(t, "csr-g", "edge-1", 2, certificatesv1.CertificateFailed),
		request(t, "csr-h", "edge-1", 4, certificatesv1.CertificateApproved),
		request(t, "csr-i", "edge-2", 9),
	}}
	got, err := client(t, map[string]http.HandlerFunc{
		"GET /apis/certificates.k8s.io/v1/certificatesigningrequests": func(
			w http.ResponseWriter, _ *http.Request) {
			answer(w, list)
		},
	}).CSRs(t.Context(), "edge-1")
	if err != nil {
		t.Fatal(err)
	}
	want := []CSR{
		{"csr-f", "denied", "so"}, {"csr-g", "failed", "so"}, {"csr-b", "issued", ""},
		{"csr-h", "approved", ""}, {"csr-a", "pending", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CSRs (-want +got):\n%s", diff)
	}
	if _, err := client(t, nil).CSRs(t.Context(), "edge-1"); err == nil {
		t.Error("404 is no error")
	}
}
