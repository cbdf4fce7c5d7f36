package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// where is the address of an API server and the certificates that it is verified with.
type where = transition.Cluster

// locator finds out where the API server is. Azure is asked at most once in a run.
type locator struct {
	home *home
	// asked is what Azure has said; nil when it was not asked.
	asked *aks.Cluster
	// again asks Azure although there is a proved address, because that one no longer works.
	again bool
}

// locate returns the address: as the configuration says, else as it was proved, else as Azure says.
func (l *locator) locate(ctx context.Context, c config.Config) (where, error) {
	given := where{Server: c.Node.Kubelet.ServerURL}
	if text := c.Node.Kubelet.CACertData; text != "" {
		ca, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return given, fmt.Errorf("internal error: caCertData was not validated: %w", err)
		}
		given.CA = string(ca)
	}
	if given.Server != "" && given.CA != "" {
		return given, nil
	}
	if proved, ok := l.proved(c); ok && !l.again {
		return merge(given, proved), nil
	}
	if l.asked == nil {
		found, err := l.home.askAzure(ctx, c)
		if err != nil {
			return given, err
		}
		l.asked = &found
	}
	return merge(given, where{Server: l.asked.Server, CA: l.asked.CA}), nil
}

// proved is where the API server of the same cluster was last.
func (l *locator) proved(c config.Config) (where, bool) {
	live, b := l.home.saved.Live, l.home.saved.Bindings
	if live == nil || b.Server == "" || b.CA == "" {
		return where{}, false
	}
	was, is := live.Config.Azure.TargetCluster.ResourceID, c.Azure.TargetCluster.ResourceID
	same := strings.EqualFold(was, is)
	return where{Server: b.Server, CA: b.CA}, same
}

// merge fills in what is not given.
func merge(given, found where) where {
	if given.Server == "" {
		given.Server = found.Server
	}
	if given.CA == "" {
		given.CA = found.CA
	}
	return given
}

// askAzure asks whoever may, and returns the first answer.
func (h *home) askAzure(ctx context.Context, c config.Config) (aks.Cluster, error) {
	return askManagers(ctx, h, c,
		func(ctx context.Context, client aks.Client) (aks.Cluster, error) { return client.Cluster(ctx) })
}

// options are how the API server is reached.
func (a *Agent) options(c config.Config) kube.Options {
	return kube.Options{Proxy: c.ProxyFunc(), Dial: a.Dial}
}

// clientCertificate is the file in which kubelet keeps its client certificate and key.
func clientCertificate(c config.Config) string {
	return node.ClientCertificatePath(c.Paths.Kubernetes.KubeletDir)
}

// kubeletClient returns a client with the credential that kubelet has on this machine.
func (h *home) kubeletClient(ctx context.Context, c config.Config, at where) (*kube.Client, error) {
	if !c.Azure.ShowsToken() {
		return kube.FromCertificate(at.Server, []byte(at.CA), h.path(clientCertificate(c)), h.options(c))
	}
	token, err := h.token(ctx, c)
	if err != nil {
		return nil, err
	}
	return kube.FromToken(at.Server, []byte(at.CA), token.Value, h.options(c))
}

// joinClient returns a client with whatever credential there is: kubelet's, else what it joins
// with, which may read its certificate requests.
func (h *home) joinClient(ctx context.Context, c config.Config, at where) (*kube.Client, error) {
	if h.credentialed(c) {
		return h.kubeletClient(ctx, c, at)
	}
	token, err := h.joinToken(ctx, c)
	if err != nil {
		return nil, err
	}
	return kube.FromToken(at.Server, []byte(at.CA), token, h.options(c))
}

// joinToken is what kubelet asks for its first certificate with, or shows with each request.
func (h *home) joinToken(ctx context.Context, c config.Config) (string, error) {
	if t := c.Azure.BootstrapToken; t != nil {
		return t.Token.Reveal(), nil
	}
	token, err := freshToken(ctx, c)
	return token.Value, err
}

// shownToken is the token that kubelet shows, or asks for its certificate with. A kubelet that
// shows tokens has a cache of them: whoever only wants to know what is wrong asks the issuer for no
// other.
func (h *home) shownToken(ctx context.Context, c config.Config) (string, error) {
	if !c.Azure.ShowsToken() || !h.credentialed(c) {
		return h.joinToken(ctx, c)
	}
	token, err := h.token(ctx, c)
	return token.Value, err
}

// follow finds the API server again when it no longer is where it was proved to be: its name does
// not resolve, or its certificate is of another CA. Then whoever says where it is, is asked again:
// Azure, or the configuration. The target is a change when it is elsewhere, and the same cluster.
func (h *home) follow(ctx context.Context, t *target) error {
	if !h.saved.Joined() || t.moved {
		return nil
	}
	c := t.input.Config
	fault := kube.Probe(ctx, kube.Target{
		Server: h.saved.Bindings.Server, CA: []byte(h.saved.Bindings.CA), Options: h.options(c),
	})
	if !kube.Rebind(fault) {
		return nil
	}
	t.locator.again = true
	at, err := t.locator.locate(ctx, c)
	if err != nil {
		return fmt.Errorf("the API server is not where it was (%w), and cannot find it again: %w",
			fault, err)
	}
	b := h.saved.Bindings
	if at.Server == b.Server && saved.Unite(at.CA, b.CA) == saved.Unite(b.CA, "") {
		if !located(c) {
			return nil // Azure says nothing new; the gate and the conditions tell what is wrong
		}
		e := health.Evidence{Now: now(), Wanted: h.wanted(c), Probe: health.Tried(fault)}
		return health.Problem(health.Evaluate(health.Preflight(), e))
	}
	t.moved, t.at = true, at
	return h.sameCluster(ctx, c, at)
}

// located tells whether the configuration says where the API server is, so that Azure is not asked.
func located(c config.Config) bool {
	return c.Node.Kubelet.ServerURL != "" && c.Node.Kubelet.CACertData != ""
}

// sameCluster refuses to turn a node into one of another cluster: kubelet's state of the one must
// not meet the other. The same cluster may have another address and another CA: the uid of its
// Service default/kubernetes tells.
func (h *home) sameCluster(ctx context.Context, c config.Config, at where) error {
	if !h.saved.Joined() || at == h.saved.At() {
		return nil
	}
	known := h.saved.Bindings.ClusterUID
	// The API server may not have the new CA yet.
	either := where{Server: at.Server, CA: saved.Unite(at.CA, h.saved.Bindings.CA)}
	uid, err := h.clusterUID(ctx, c, either)
	switch {
	case errors.Is(err, kube.ErrUnauthorized):
		return fmt.Errorf("cannot use %s: it does not accept this node's credential; if it is the same "+
			"cluster, run `aks-flex-node unbootstrap` and join with a new configuration", at.Server)
	case err != nil:
		return fmt.Errorf("cannot tell whether %s is this node's cluster: %w", at.Server, err)
	case known == "" && at.Server != h.saved.Bindings.Server &&
		!saved.SharesCA(at.CA, h.saved.Bindings.CA),
		known != "" && uid != known:
		return fmt.Errorf("cannot join %s: this machine is a node of another cluster, %s; "+
			"run `aks-flex-node unbootstrap` first", at.Server, h.saved.Bindings.Server)
	}
	return nil
}

func (h *home) clusterUID(ctx context.Context, c config.Config, at where) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	client, err := h.kubeletClient(ctx, c, at)
	if err != nil {
		return "", err
	}
	defer client.Close()
	return client.ClusterUID(ctx)
}
