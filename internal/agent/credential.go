package agent

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
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

// withServing adds until when kubelet's serving certificate is valid, where the cluster issues it.
func (h *home) withServing(c config.Config, e *health.Evidence) {
	if !c.Node.Kubelet.ServerTLSBootstrap {
		return
	}
	is, err := h.validity(servingCertificate(c))
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
func (h *home) certificate(file string) (*x509.Certificate, error) {
	data, err := h.Machine.ReadFile(file)
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
func (h *home) validity(file string) (health.Validity, error) {
	c, err := h.certificate(file)
	if err != nil {
		return health.Validity{}, err
	}
	return health.Validity{From: c.NotBefore, To: c.NotAfter}, nil
}

// expiries are kubelet's certificates, with when each expires.
func (h *home) expiries(c config.Config) map[string]time.Time {
	found := map[string]time.Time{}
	for name, file := range map[string]string{
		"kubelet-client": clientCertificate(c),
		"kubelet-server": servingCertificate(c),
	} {
		if is, err := h.validity(file); err == nil {
			found[name] = is.To.UTC()
		}
	}
	return found
}

// credentialed tells whether kubelet has a credential: a certificate that is valid now, or the way
// to an identity's tokens.
func (h *home) credentialed(c config.Config) bool {
	dir := c.Paths.Kubernetes.KubeletDir
	if _, err := h.Machine.ReadFile(node.KubeconfigPath(dir)); err != nil {
		return false
	}
	if c.Azure.ShowsToken() {
		return true
	}
	cert, err := h.certificate(clientCertificate(c))
	return err == nil && now().Before(cert.NotAfter) &&
		cert.Subject.CommonName == "system:node:"+c.Agent.NodeName
}

// Token returns kubelet's token for the API server: from this machine's cache, else from the
// issuer. It is that of the live generation, so a rollback changes it before it waits for anything.
func (a *Agent) Token(ctx context.Context) (identity.Token, error) {
	h := &home{Agent: a, saved: saved.New(a.Machine, a.Machine.List)}
	c, err := h.tokenConfig(ctx)
	if err != nil {
		return identity.Token{}, err
	}
	return h.token(ctx, c)
}

// tokenConfig is the live configuration, with its credentials.
func (h *home) tokenConfig(ctx context.Context) (config.Config, error) {
	id, err := h.saved.Generations.Target(ctx, generation.Live)
	if err != nil {
		return config.Config{}, err
	}
	if id == "" {
		return config.Config{}, errors.New("cannot make a token: this machine is not a node")
	}
	if err := h.saved.ReadSecrets(); err != nil {
		return config.Config{}, err
	}
	c, err := h.saved.Generations.Config(id)
	return c.WithCredentials(h.saved.Secrets[id]), err
}

// token returns a configuration's token for kubelet from the cache, else from the issuer.
func (h *home) token(ctx context.Context, c config.Config) (identity.Token, error) {
	cache, err := h.tokenCache(c)
	if err != nil {
		return identity.Token{}, err
	}
	return cache.Token(ctx)
}

func (h *home) tokenCache(c config.Config) (identity.Cache, error) {
	key, err := identity.Key(c.Azure)
	if err != nil {
		return identity.Cache{}, err
	}
	return identity.Cache{
		Dir: h.path(saved.RunDir), Key: key, Scope: identity.AKSServer + "/.default",
		Need:       identity.KubeletToken(c.Azure),
		Warn:       func(err error) { h.warn("%v", err) },
		Credential: kubeletCredential(c),
	}, nil
}

// freshToken gets a token for kubelet from its issuer, past every cache.
func freshToken(ctx context.Context, c config.Config) (identity.Token, error) {
	const scope = identity.AKSServer + "/.default"
	return identity.Fresh(ctx, kubeletCredential(c), scope, identity.KubeletToken(c.Azure))
}

// kubeletCredential makes kubelet's credential, anew for each call.
func kubeletCredential(c config.Config) func() (identity.Credential, error) {
	return func() (identity.Credential, error) { return identity.Kubelet(c.Azure, c.ProxyFunc()) }
}

// prove makes sure that a changed credential works before anything relies on it: one fresh token
// from the issuer, past every cache, and one call of the API server with it. Whoever is forbidden
// something has been recognised.
func (h *home) prove(ctx context.Context, c config.Config, at where) error {
	if c.Azure.BootstrapToken != nil {
		return nil
	}
	token, err := freshToken(ctx, c)
	if identity.Refused(err) {
		return &transition.RefusedError{Err: err}
	}
	if err != nil {
		return err
	}
	client, err := kube.FromToken(at.Server, []byte(at.CA), token.Value, h.options(c))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err = client.WhoAmI(ctx); errors.Is(err, kube.ErrUnauthorized) {
		return &transition.RefusedError{Err: fmt.Errorf("cannot use the configured identity: the API "+
			"server does not accept its token (401); check azure.tenantId and %s",
			strings.TrimPrefix(string(c.Azure.AuthMode()), "azure."))}
	}
	return err
}
