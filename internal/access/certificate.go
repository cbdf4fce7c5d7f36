package access

import (
	"crypto/x509"
	"fmt"
	"path"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// ClientCertificate is the file in which kubelet keeps its client certificate and key.
func ClientCertificate(c config.Config) string {
	return node.ClientCertificatePath(c.Paths.Kubernetes.KubeletDir)
}

// ServingCertificate is the file in which kubelet keeps its serving certificate and key.
func ServingCertificate(c config.Config) string {
	return path.Join(c.Paths.Kubernetes.KubeletDir, "pki", "kubelet-server-current.pem")
}

// Certificate returns the first one in a file of the machine.
func Certificate(m Machine, file string) (*x509.Certificate, error) {
	data, err := m.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate: %w", err)
	}
	list, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	return list[0], nil
}

// Held reports whether kubelet has a credential: a valid certificate, or an identity's tokens.
func Held(m Machine, c config.Config) bool {
	dir := c.Paths.Kubernetes.KubeletDir
	if _, err := m.ReadFile(node.KubeconfigPath(dir)); err != nil {
		return false
	}
	if c.Azure.ShowsToken() {
		return true
	}
	has, err := Certificate(m, ClientCertificate(c))
	return err == nil && time.Now().Before(has.NotAfter) &&
		has.Subject.CommonName == "system:node:"+c.Agent.NodeName
}

// Validity returns from when to when the certificate in a file of the machine is valid.
func Validity(m Machine, file string) (health.Validity, error) {
	return validity(Certificate(m, file))
}

// KubeletValidity is that of kubelet's client certificate. Without its kubeconfig kubelet does not
// use it.
func KubeletValidity(m Machine, c config.Config) (health.Validity, error) {
	if _, err := m.ReadFile(node.KubeconfigPath(c.Paths.Kubernetes.KubeletDir)); err != nil {
		return health.Validity{}, fmt.Errorf("cannot read its kubeconfig: %w", err)
	}
	return validity(Certificate(m, ClientCertificate(c)))
}

// PrincipalValidity returns that of the credential of a service principal: its certificate, else
// its secret, as far as the configuration says when that ends.
func PrincipalValidity(sp config.ServicePrincipal) (health.Validity, error) {
	if sp.CertificateFile == "" {
		to, err := time.Parse(time.DateOnly, sp.SecretExpires)
		return health.Validity{To: to}, err
	}
	return validity(identity.Certificate(sp))
}

func validity(c *x509.Certificate, err error) (health.Validity, error) {
	if err != nil {
		return health.Validity{}, err
	}
	return health.Validity{From: c.NotBefore, To: c.NotAfter}, nil
}
