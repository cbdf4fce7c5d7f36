// Package access gives a machine access to its cluster: it finds the API server, the certificate or
// token with which kubelet authenticates, and, for a machine that Azure does not know yet, enrols
// it with Azure Arc, whose identity the cluster authorises. Packages aks, arc, identity and kube
// implement the protocols; the caller provides the machine's records.
package access

import (
	"context"
	"crypto/x509"
	"fmt"
	"path"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Machine is the part of the machine that access needs, as this process reaches it.
type Machine interface {
	arc.Machine
	ReadFile(path string) ([]byte, error)
	Path(p string) string                 // of a file for this process
	Options(c config.Config) kube.Options // for connections to the API server
	Warn(format string, args ...any)
}

// Client returns a client with kubelet's credential on this machine.
func Client(
	ctx context.Context, m Machine, c config.Config, at transition.Cluster,
) (*kube.Client, error) {
	if !c.Azure.ShowsToken() {
		return kube.FromCertificate(at.Server, []byte(at.CA), m.Path(ClientCertificate(c)), m.Options(c))
	}
	token, err := Cached(ctx, m, c)
	if err != nil {
		return nil, err
	}
	return kube.FromToken(at.Server, []byte(at.CA), token.Value, m.Options(c))
}

// JoinClient returns a client with kubelet's credential, or, if it has none, its join credential.
func JoinClient(
	ctx context.Context, m Machine, c config.Config, at transition.Cluster,
) (*kube.Client, error) {
	if Held(m, c) {
		return Client(ctx, m, c, at)
	}
	token, err := JoinToken(ctx, c)
	if err != nil {
		return nil, err
	}
	return kube.FromToken(at.Server, []byte(at.CA), token, m.Options(c))
}

// JoinToken returns kubelet's token for its first certificate request, or for every request.
func JoinToken(ctx context.Context, c config.Config) (string, error) {
	if t := c.Azure.BootstrapToken; t != nil {
		return t.Token.Reveal(), nil
	}
	token, err := Fresh(ctx, c)
	return token.Value, err
}

// Shown returns the token with which kubelet authenticates or requests its certificate. It uses
// kubelet's token cache, if kubelet has one, so that a check does not request another token.
func Shown(ctx context.Context, m Machine, c config.Config) (string, error) {
	if !c.Azure.ShowsToken() || !Held(m, c) {
		return JoinToken(ctx, c)
	}
	token, err := Cached(ctx, m, c)
	return token.Value, err
}

// Authorised reports whether the cluster allows a token's identity to do what kubelet must do.
func Authorised(
	ctx context.Context, m Machine, c config.Config, at transition.Cluster, token string,
) (bool, error) {
	client, err := kube.FromToken(at.Server, []byte(at.CA), token, m.Options(c))
	if err != nil {
		return false, err
	}
	defer client.Close()
	access, _ := Required(c)
	ok, _, err := client.May(ctx, access)
	return ok, err
}

// Required returns the access that kubelet's identity needs, and a role that grants it.
func Required(c config.Config) (kube.Access, string) {
	if c.Azure.ShowsToken() {
		role := fmt.Sprintf("the role %q on %s",
			config.RoleRBACClusterAdmin, c.Azure.TargetCluster.ResourceID)
		return kube.Access{Verb: "create", Resource: "nodes"}, role
	}
	return kube.Access{
			Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests",
		}, "the ClusterRole system:node-bootstrapper in the cluster (`flexnode-rp cluster prepare " +
			"--identities`), or azure.kubeletCredential token with roles of Azure"
}

// Token authenticates kubelet to the API server.
type Token = identity.Token

// Cached returns a configuration's token for kubelet from the cache, else from the issuer.
func Cached(ctx context.Context, m Machine, c config.Config) (Token, error) {
	cache, err := Cache(m, c)
	if err != nil {
		return Token{}, err
	}
	return cache.Token(ctx)
}

// Cache returns the cache of kubelet's tokens.
func Cache(m Machine, c config.Config) (identity.Cache, error) {
	key, err := identity.Key(c.Azure)
	if err != nil {
		return identity.Cache{}, err
	}
	return identity.Cache{
		Dir: m.Path(config.RunDir), Key: key, Scope: identity.AKSServer + "/.default",
		Need: identity.TokenFor("kubelet", c.Azure),
		Warn: func(err error) { m.Warn("%v", err) }, Now: time.Now, Boot: identity.Uptime,
		Credential: credential(c),
	}, nil
}

// Images answers kubelet's requests for image credentials.
type Images = identity.Images

// ImageFailures returns the recent errors of registries.
func ImageFailures(m Machine, now time.Time) []string {
	return identity.Failures(m.Path(config.RunDir), now)
}

// Fresh gets a token for kubelet from its issuer, bypassing caches if possible.
func Fresh(ctx context.Context, c config.Config) (Token, error) {
	const scope = identity.AKSServer + "/.default"
	return identity.Fresh(ctx, credential(c), scope, identity.TokenFor("kubelet", c.Azure))
}

// Refused reports whether the issuer of a token has refused the credential itself.
func Refused(err error) bool { return identity.Refused(err) }

func credential(c config.Config) func() (identity.Credential, error) {
	return func() (identity.Credential, error) { return identity.Kubelet(c.Azure, c.ProxyFunc()) }
}

// ClientCertificate returns the file with kubelet's client certificate and key.
func ClientCertificate(c config.Config) string {
	return node.ClientCertificatePath(c.Paths.Kubernetes.KubeletDir)
}

// ServingCertificate returns the file with kubelet's serving certificate and key.
func ServingCertificate(c config.Config) string {
	return path.Join(c.Paths.Kubernetes.KubeletDir, "pki", "kubelet-server-current.pem")
}

// Certificate returns the first certificate in a file of the machine.
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
	if _, err := m.ReadFile(node.KubeconfigPath(c.Paths.Kubernetes.KubeletDir)); err != nil {
		return false
	}
	if c.Azure.ShowsToken() {
		return true
	}
	has, err := Certificate(m, ClientCertificate(c))
	return err == nil && time.Now().Before(has.NotAfter) &&
		has.Subject.CommonName == "system:node:"+c.Agent.NodeName
}

// Validity returns the validity of the certificate in a file of the machine.
func Validity(m Machine, file string) (health.Validity, error) {
	return validity(Certificate(m, file))
}

// KubeletValidity returns the validity of kubelet's client certificate, if kubelet uses it.
func KubeletValidity(m Machine, c config.Config) (health.Validity, error) {
	if _, err := m.ReadFile(node.KubeconfigPath(c.Paths.Kubernetes.KubeletDir)); err != nil {
		return health.Validity{}, fmt.Errorf("cannot read its kubeconfig: %w", err)
	}
	return validity(Certificate(m, ClientCertificate(c)))
}

// PrincipalValidity returns the validity of a service principal's certificate, or of its secret.
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
