package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// WithServing adds until when kubelet's serving certificate is valid, where the cluster issues it.
func WithServing(h *Node, c config.Config, e *health.Evidence) {
	if !c.Node.Kubelet.ServerTLSBootstrap {
		return
	}
	is, err := access.Validity(h, access.ServingCertificate(c))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	e.Serving = health.Answered(is.To, err)
}

// expiries are kubelet's certificates, with when each expires.
func expiries(h *Node, c config.Config) map[string]time.Time {
	found := map[string]time.Time{}
	for name, file := range map[string]string{
		"kubelet-client": access.ClientCertificate(c),
		"kubelet-server": access.ServingCertificate(c),
	} {
		if is, err := access.Validity(h, file); err == nil {
			found[name] = is.To.UTC()
		}
	}
	if sp := principal(c); sp != nil {
		if is, err := access.PrincipalValidity(*sp); err == nil {
			found["principal"] = is.To.UTC()
		}
	}
	return found
}

// principal is the service principal that is the node's identity, if it is known when its
// credential ends; else nil. One that has enrolled an Arc machine has done its work.
func principal(c config.Config) *config.ServicePrincipal {
	sp := c.Azure.ServicePrincipal
	if sp == nil || sp.CertificateFile == "" && sp.SecretExpires == "" ||
		c.Azure.AuthMode() == config.AuthArc {
		return nil
	}
	return sp
}

// Token returns kubelet's token for the API server: from this machine's cache, else from the
// issuer. It is that of the live generation, so a rollback changes it before it waits for anything.
func Token(ctx context.Context, a *Env) (access.Token, error) {
	h := NewNode(a, nil)
	c, err := live(ctx, h)
	if err != nil {
		return access.Token{}, err
	}
	return access.Cached(ctx, h, c)
}

// Images answers kubelet's requests for credentials of images, with the live generation's identity.
func Images(ctx context.Context, a *Env) (access.Images, error) {
	h := NewNode(a, nil)
	c, err := live(ctx, h)
	return access.ImagesOf(h, c), err
}

// live is the configuration of the live generation, with its credentials.
func live(ctx context.Context, h *Node) (config.Config, error) {
	id, err := h.Saved.Generations.Target(ctx, generation.Live)
	if err == nil && id == "" {
		err = fmt.Errorf("cannot make a token: %w", ErrNoNode)
	}
	if err == nil {
		err = h.Saved.ReadSecrets()
	}
	if err != nil {
		return config.Config{}, err
	}
	c, err := h.Saved.Generations.Config(id)
	if err != nil {
		return config.Config{}, err
	}
	return c.WithCredentials(h.Saved.Secrets[id]), nil
}

// Cluster is the address of an API server and the certificates that it is verified with.
type Cluster = transition.Cluster

// Allowed makes sure that the cluster authorises the configured identity to join.
func Allowed(ctx context.Context, h *Node, c config.Config, at Cluster) error {
	arc := c.Azure.AuthMode() == config.AuthArc && !EnrolledBefore(h)
	if c.Azure.BootstrapToken != nil || arc || access.Held(h, c) && !c.Azure.ShowsToken() {
		return nil
	}
	token, err := access.JoinToken(ctx, h, c)
	if err != nil {
		return err
	}
	ok, err := access.Authorised(ctx, h, c, at, token)
	if err != nil || ok {
		return err
	}
	_, role := access.Required(c)
	return fmt.Errorf("cannot join the cluster: it does not authorise the configured identity, which "+
		"needs %s; a role assignment takes some minutes to have an effect", role)
}

// Trusted makes sure that only root can change the program that root and kubelet run.
func Trusted(h *Node) error { return h.TrustedFile(h.Program) }
