package inspect

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// WithServing adds until when kubelet's serving certificate is valid, where the cluster issues it.
func WithServing(h *Node, c config.Config, e *health.Evidence) {
	if !c.Node.Kubelet.ServerTLSBootstrap {
		return
	}
	is, err := validity(h, servingCertificate(c))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	e.Serving = health.Answered(is.To, err)
}

// servingCertificate is the file in which kubelet keeps its serving certificate and key.
func servingCertificate(c config.Config) string {
	return path.Join(c.Paths.Kubernetes.KubeletDir, "pki", "kubelet-server-current.pem")
}

// certificate is the first one in a file of the machine.
func certificate(h *Node, file string) (*x509.Certificate, error) {
	data, err := h.Reader.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate: %w", err)
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, fmt.Errorf("cannot read %s: it holds no certificate", file)
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", file, err)
		}
		return c, nil
	}
}

// validity is from when to when the certificate in a file of the machine is valid.
func validity(h *Node, file string) (health.Validity, error) {
	c, err := certificate(h, file)
	if err != nil {
		return health.Validity{}, err
	}
	return health.Validity{From: c.NotBefore, To: c.NotAfter}, nil
}

// expiries are kubelet's certificates, with when each expires.
func expiries(h *Node, c config.Config) map[string]time.Time {
	found := map[string]time.Time{}
	for name, file := range map[string]string{
		"kubelet-client": clientCertificate(c),
		"kubelet-server": servingCertificate(c),
	} {
		if is, err := validity(h, file); err == nil {
			found[name] = is.To.UTC()
		}
	}
	return found
}

// Credentialed reports whether kubelet has a credential: a certificate that is valid now, or the
// way to an identity's tokens.
func Credentialed(h *Node, c config.Config) bool {
	dir := c.Paths.Kubernetes.KubeletDir
	if _, err := h.Reader.ReadFile(node.KubeconfigPath(dir)); err != nil {
		return false
	}
	if c.Azure.ShowsToken() {
		return true
	}
	cert, err := certificate(h, clientCertificate(c))
	return err == nil && Now().Before(cert.NotAfter) &&
		cert.Subject.CommonName == "system:node:"+c.Agent.NodeName
}

// Token returns kubelet's token for the API server: from this machine's cache, else from the
// issuer. It is that of the live generation, so a rollback changes it before it waits for anything.
func Token(ctx context.Context, a *Env) (identity.Token, error) {
	h := NewNode(a, nil)
	c, err := tokenConfig(ctx, h)
	if err != nil {
		return identity.Token{}, err
	}
	return token(ctx, h, c)
}

// tokenConfig is the live configuration, with its credentials.
func tokenConfig(ctx context.Context, h *Node) (config.Config, error) {
	id, err := h.Saved.Generations.Target(ctx, generation.Live)
	if err != nil {
		return config.Config{}, err
	}
	if id == "" {
		return config.Config{}, errors.New("cannot make a token: this machine is not a node")
	}
	if err := h.Saved.ReadSecrets(); err != nil {
		return config.Config{}, err
	}
	c, err := h.Saved.Generations.Config(id)
	return c.WithCredentials(h.Saved.Secrets[id]), err
}

// token returns a configuration's token for kubelet from the cache, else from the issuer.
func token(ctx context.Context, h *Node, c config.Config) (identity.Token, error) {
	cache, err := TokenCache(h, c)
	if err != nil {
		return identity.Token{}, err
	}
	return cache.Token(ctx)
}

// TokenCache returns the cache of the tokens that kubelet shows.
func TokenCache(h *Node, c config.Config) (identity.Cache, error) {
	key, err := identity.Key(c.Azure)
	if err != nil {
		return identity.Cache{}, err
	}
	return identity.Cache{
		Dir: h.Path(saved.RunDir), Key: key, Scope: identity.AKSServer + "/.default",
		Need:       identity.KubeletToken(c.Azure),
		Warn:       func(err error) { h.Warn("%v", err) },
		Credential: kubeletCredential(c),
	}, nil
}

// FreshToken gets a token for kubelet from its issuer, past every cache.
func FreshToken(ctx context.Context, c config.Config) (identity.Token, error) {
	const scope = identity.AKSServer + "/.default"
	return identity.Fresh(ctx, kubeletCredential(c), scope, identity.KubeletToken(c.Azure))
}

// kubeletCredential makes kubelet's credential, anew for each call.
func kubeletCredential(c config.Config) func() (identity.Credential, error) {
	return func() (identity.Credential, error) { return identity.Kubelet(c.Azure, c.ProxyFunc()) }
}

// Cluster is the address of an API server and the certificates that it is verified with.
type Cluster = transition.Cluster

// Options are how the API server is reached.
func Options(a *Env, c config.Config) kube.Options {
	return kube.Options{Proxy: c.ProxyFunc(), Dial: a.Dial}
}

// clientCertificate is the file in which kubelet keeps its client certificate and key.
func clientCertificate(c config.Config) string {
	return node.ClientCertificatePath(c.Paths.Kubernetes.KubeletDir)
}

// KubeletClient returns a client with the credential that kubelet has on this machine.
func KubeletClient(
	ctx context.Context, h *Node, c config.Config, at Cluster,
) (*kube.Client, error) {
	if !c.Azure.ShowsToken() {
		return kube.FromCertificate(at.Server, []byte(at.CA), h.Path(clientCertificate(c)),
			Options(h.Env, c))
	}
	token, err := token(ctx, h, c)
	if err != nil {
		return nil, err
	}
	return kube.FromToken(at.Server, []byte(at.CA), token.Value, Options(h.Env, c))
}

// JoinClient returns a client with whatever credential there is: kubelet's, else what it joins
// with, which may read its certificate requests.
func JoinClient(ctx context.Context, h *Node, c config.Config, at Cluster) (*kube.Client, error) {
	if Credentialed(h, c) {
		return KubeletClient(ctx, h, c, at)
	}
	token, err := JoinToken(ctx, h, c)
	if err != nil {
		return nil, err
	}
	return kube.FromToken(at.Server, []byte(at.CA), token, Options(h.Env, c))
}

// JoinToken is what kubelet asks for its first certificate with, or shows with each request.
func JoinToken(ctx context.Context, h *Node, c config.Config) (string, error) {
	if t := c.Azure.BootstrapToken; t != nil {
		return t.Token.Reveal(), nil
	}
	token, err := FreshToken(ctx, c)
	return token.Value, err
}

// shownToken is the token that kubelet shows, or asks for its certificate with. A kubelet that
// shows tokens has a cache of them: whoever only wants to know what is wrong asks the issuer for no
// other.
func shownToken(ctx context.Context, h *Node, c config.Config) (string, error) {
	if !c.Azure.ShowsToken() || !Credentialed(h, c) {
		return JoinToken(ctx, h, c)
	}
	token, err := token(ctx, h, c)
	return token.Value, err
}

// Located reports whether the configuration says where the API server is, so that Azure is not
// asked.
func Located(c config.Config) bool {
	return c.Node.Kubelet.ServerURL != "" && c.Node.Kubelet.CACertData != ""
}

// Allowed makes sure that the cluster authorises the configured identity to join.
func Allowed(ctx context.Context, h *Node, c config.Config, at Cluster) error {
	arc := c.Azure.AuthMode() == config.AuthArc && !EnrolledBefore(h)
	if c.Azure.BootstrapToken != nil || arc || Credentialed(h, c) && !c.Azure.ShowsToken() {
		return nil
	}
	token, err := JoinToken(ctx, h, c)
	if err != nil {
		return err
	}
	ok, err := Authorised(ctx, h, c, at, token)
	if err != nil || ok {
		return err
	}
	_, role := RequiredAccess(c)
	return fmt.Errorf("cannot join the cluster: it does not authorise the configured identity, which "+
		"needs %s; a role assignment takes some minutes to have an effect", role)
}

// Authorised reports whether the cluster lets the identity of a token do what kubelet must.
func Authorised(
	ctx context.Context, h *Node, c config.Config, at Cluster, token string,
) (bool, error) {
	client, err := kube.FromToken(at.Server, []byte(at.CA), token, Options(h.Env, c))
	if err != nil {
		return false, err
	}
	defer client.Close()
	access, _ := RequiredAccess(c)
	ok, _, err := client.May(ctx, access)
	return ok, err
}

// RequiredAccess is what kubelet's identity must be allowed in the cluster, and the role that
// allows it.
func RequiredAccess(c config.Config) (kube.Access, string) {
	if c.Azure.ShowsToken() {
		role := fmt.Sprintf("the role %q on %s",
			config.RoleRBACClusterAdmin, c.Azure.TargetCluster.ResourceID)
		return kube.Access{Verb: "create", Resource: "nodes"}, role
	}
	return kube.Access{
			Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests",
		}, "the ClusterRole system:node-bootstrapper in the cluster (docs/security.md has the " +
			"manifest), or azure.kubeletCredential token with roles of Azure"
}

// Trusted makes sure that only root can change the program that root and kubelet run.
func Trusted(h *Node) error { return h.TrustedFile(h.Program) }
