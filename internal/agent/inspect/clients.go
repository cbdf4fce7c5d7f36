package inspect

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

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

// Located tells whether the configuration says where the API server is, so that Azure is not asked.
func Located(c config.Config) bool {
	return c.Node.Kubelet.ServerURL != "" && c.Node.Kubelet.CACertData != ""
}
