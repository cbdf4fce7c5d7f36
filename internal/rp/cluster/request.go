package cluster

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
)

// maxRequest limits the size of a reduced certificate request, and of the PEM in it.
const maxRequest = 16 << 10

// reduceRequest returns a certificate request with the fields that are used. One that is larger
// than any kubelet's keeps only its name, so that it is ignored.
func reduceRequest(csr *certificates.CertificateSigningRequest) runtime.Object {
	m, spec := csr.ObjectMeta, csr.Spec
	kept := &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
			CreationTimestamp: m.CreationTimestamp, Labels: m.Labels, Annotations: m.Annotations,
			Finalizers: m.Finalizers},
		Spec: certificates.CertificateSigningRequestSpec{Request: spec.Request,
			SignerName: spec.SignerName, ExpirationSeconds: spec.ExpirationSeconds,
			Usages: spec.Usages, Username: spec.Username, Groups: spec.Groups},
		Status: certificates.CertificateSigningRequestStatus{Conditions: csr.Status.Conditions},
	}
	if id, ok := spec.Extra[credentialKey]; ok {
		kept.Spec.Extra = map[string]certificates.ExtraValue{credentialKey: id}
	}
	if kept.Size() > maxRequest {
		return &certificates.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: m.Name, ResourceVersion: m.ResourceVersion}}
	}
	kept.Status.Certificate = reduceCertificate(csr.Status.Certificate)
	return kept
}

// parseRequest returns the PKCS#10 request in a certificate request. flaw is the reason that it is
// invalid; "" if it is signed with its own key. The key is checked before the signature.
func parseRequest(text []byte) (r *x509.CertificateRequest, flaw string) {
	block, rest := pem.Decode(text[:min(len(text), maxRequest)])
	if block == nil || len(strings.TrimSpace(string(rest))) > 0 || len(text) > maxRequest {
		return nil, "it holds no request, or more than one"
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil && !soundKey(r.PublicKey, maxRequestKey) {
		return nil, "its key has an unusual type or size"
	}
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, "its request cannot be read or is not signed with its key"
	}
	return r, ""
}

func readCSR(csr *certificates.CertificateSigningRequest) credential.Application {
	a := credential.Application{Name: csr.Name, TokenID: tokenOf(csr)}
	var request *x509.CertificateRequest
	if request, a.Flaw = parseRequest(csr.Spec.Request); a.Flaw != "" {
		return a
	}
	a.KeyHash = fmt.Sprintf("%x", sha256.Sum256(request.RawSubjectPublicKeyInfo))
	a.Flaw = flawOf(request, csr.Spec.Usages)
	if node, _ := strings.CutPrefix(request.Subject.CommonName, "system:node:"); isName(node) {
		a.Node = node
	}
	return a
}

// usages lists the allowed usages of a node's client certificate.
var usages = sets.New(certificates.UsageDigitalSignature,
	certificates.UsageKeyEncipherment, certificates.UsageClientAuth)

// flawOf returns the reason that a request is not for a node's client certificate (Kubernetes,
// "Certificate Signing Requests", kubernetes.io/kube-apiserver-client-kubelet); "" if it is.
func flawOf(r *x509.CertificateRequest, asked []certificates.KeyUsage) string {
	names := len(r.DNSNames) + len(r.IPAddresses) + len(r.EmailAddresses) + len(r.URIs)
	name, isNode := strings.CutPrefix(r.Subject.CommonName, "system:node:")
	switch {
	case !isNode || !isName(name) || !slices.Equal(r.Subject.Organization, []string{"system:nodes"}):
		return "it is not for a node"
	case names > 0:
		return "it has subject alternative names"
	case !slices.Contains(asked, certificates.UsageClientAuth) || !usages.HasAll(asked...):
		return "its usages are not those of a node's client certificate"
	}
	return ""
}

// tokenOf returns the id of the bootstrap token of our group with which a request was sent; "" for
// none.
func tokenOf(csr *certificates.CertificateSigningRequest) string {
	id, isToken := strings.CutPrefix(csr.Spec.Username, tokenUser)
	if !isToken || !slices.Contains(csr.Spec.Groups, TokenGroup) {
		return ""
	}
	return id
}

// nodeIn returns the name of the node that sent a request with its certificate; "" if none did.
func nodeIn(csr *certificates.CertificateSigningRequest) string {
	name, isNode := strings.CutPrefix(csr.Spec.Username, "system:node:")
	if !isNode {
		return ""
	}
	return name
}

// answers holds the conditions of a request.
type answers struct{ approved, denied, issued bool }

func answersOf(csr *certificates.CertificateSigningRequest) answers {
	a := answers{issued: len(csr.Status.Certificate) > 0}
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificates.CertificateApproved:
			a.approved = true
		case certificates.CertificateDenied, certificates.CertificateFailed:
			a.denied = true
		}
	}
	return a
}

// concerns reports whether the provider may have to decide on a request: one with a token of our
// group, one of a user unknown to Kubernetes, who may be a node's Azure identity, or one of a node
// for its serving certificate or to renew its own.
func concerns(csr *certificates.CertificateSigningRequest) bool {
	user, byNode := csr.Spec.Username, nodeIn(csr) != ""
	switch csr.Spec.SignerName {
	case certificates.KubeletServingSignerName:
		return byNode
	case certificates.KubeAPIServerClientKubeletSignerName:
		return tokenOf(csr) != "" || byNode || user != "" && !strings.HasPrefix(user, "system:")
	}
	return false
}
