package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
)

// Target is what a node is about to join.
type Target struct {
	// Server is an https URL, CA is PEM; both are taken from Kubeconfig when that is set.
	Server string
	CA     []byte
	// Token is a bearer token. Without it and without Kubeconfig the credential is not checked.
	Token string
	// Kubeconfig is the path of a kubeconfig.
	Kubeconfig string
	Proxy      Proxy
	// Version is kubelet's, as 1.35.4, which must not be newer than the API server; "" is not checked.
	Version string
}

// bootstrapToken is the shape of a bootstrap token (kubernetes.io, "Authenticating with Bootstrap Tokens").
var bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// Probe finds out whether target can be joined from here, layer by layer: name, connection, proxy, TLS, API, version, credential and, for a
// bootstrap token, the right to ask for a certificate. It changes nothing. The error is a *Fault when a layer is broken.
func Probe(ctx context.Context, target Target) error {
	cfg := tokenConfig(target.Server, target.CA, target.Token)
	if target.Kubeconfig != "" {
		var err error
		if cfg, err = loadKubeconfig(target.Kubeconfig); err != nil {
			return err
		}
	}
	c, err := newClient(cfg, target.Proxy)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := brief(ctx)
	defer cancel()
	server, err := c.checkVersion(ctx, cfg)
	if err != nil {
		return err
	}
	if err := skew(server, target.Version); err != nil {
		return err
	}
	if !bootstrapToken.MatchString(cfg.BearerToken) {
		return nil
	}
	return c.checkBootstrapper(ctx)
}

// checkVersion asks for the version with the credential, which an API server checks on every path.
func (c *Client) checkVersion(ctx context.Context, cfg *rest.Config) (string, error) {
	host := strings.TrimRight(cfg.Host, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/version", nil)
	if err != nil {
		return "", fmt.Errorf("cannot ask %s: %w", cfg.Host, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", answerFault(host, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return "", answerFault(host, err)
	}
	if fault := statusFault(host, resp, cfg.BearerToken); fault != nil {
		return "", fault
	}
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &info); err != nil || info.GitVersion == "" {
		return "", &Fault{Layer: LayerHTTP, Message: host + " is no Kubernetes API server: it does not tell a version", Remedy: "check node.kubelet.serverURL", Err: err}
	}
	return info.GitVersion, nil
}

// answerFault says why a request on a working connection got no answer; a fault of a lower layer stays itself.
func answerFault(host string, err error) error {
	if fault, ok := errors.AsType[*Fault](err); ok {
		return fault
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &Fault{Layer: LayerHTTP, Message: fmt.Sprintf("%s gives no answer: %v", host, innermost(err)), Remedy: "check that the API server is healthy, and what is in front of it", Err: err}
}

// statusFault says what is wrong with an answer to /version.
func statusFault(host string, resp *http.Response, token string) *Fault {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	code := resp.StatusCode
	switch {
	case code == http.StatusUnauthorized:
		return credentialFault(host, token)
	case media == "text/html":
		return &Fault{Layer: LayerHTTP, Message: fmt.Sprintf("a web page answers at %s (%d): a login portal or another service", host, code), Remedy: "log in to the network, or check node.kubelet.serverURL"}
	case code >= 300 && code < 400:
		return &Fault{Layer: LayerHTTP, Message: fmt.Sprintf("%s redirects to another place (%d)", host, code), Remedy: "log in to the network if it has a portal, or check node.kubelet.serverURL"}
	case code == http.StatusForbidden:
		return &Fault{Layer: LayerAuthz, Message: host + " does not let this credential ask for its version (403)", Remedy: "have the ClusterRoleBinding system:public-info-viewer restored"}
	case code == http.StatusTooManyRequests || code >= 500:
		return &Fault{Layer: LayerHTTP, Message: fmt.Sprintf("%s answers with an error of its own (%d)", host, code), Remedy: "try again later; if it stays, ask the cluster's operator"}
	case code != http.StatusOK:
		return &Fault{Layer: LayerHTTP, Message: fmt.Sprintf("%s is no Kubernetes API server: it answers %d", host, code), Remedy: "check node.kubelet.serverURL"}
	}
	return nil
}

func credentialFault(host, token string) *Fault {
	f := &Fault{Layer: LayerAuth, Message: host + " does not accept this machine's credential (401)", Remedy: "check that it has not expired and that it is meant for this cluster"}
	if bootstrapToken.MatchString(token) {
		f.Message = fmt.Sprintf("%s does not accept the bootstrap token with the id %s (401): it has expired, was deleted, or belongs to another cluster", host, token[:6])
		f.Remedy = "get a new token from the cluster's operator"
	} else if token != "" {
		f.Message = host + " does not accept the token (401): it has expired or belongs to another cluster"
		f.Remedy = "get a new token; a bootstrap token has the form abcdef.0123456789abcdef"
	}
	return f
}

// checkBootstrapper asks whether the token may ask for a certificate. A cluster that does not tell is given the benefit of the doubt.
func (c *Client) checkBootstrapper(ctx context.Context) error {
	allowed, err := c.mayCreate(ctx, "")
	if fault, ok := errors.AsType[*Fault](err); ok {
		return fault
	}
	if allowed || err != nil {
		return nil
	}
	return &Fault{
		Layer:   LayerAuthz,
		Message: "the bootstrap token is accepted, but it may not ask for a node certificate",
		Remedy:  "have the operator run `kubectl apply -f packaging/kubernetes/rbac.yaml`, and give the token's Secret auth-extra-groups: " + bootstrappers,
	}
}

// bootstrappers is the group whose tokens our manifest allows to join.
const bootstrappers = "system:bootstrappers:aks-flex-node"

// Approvable tells whether kube-controller-manager approves the certificate requests made with this credential by itself: the
// credential must have the right to create the subresource nodeclient (kubernetes.io, "TLS bootstrapping").
func (c *Client) Approvable(ctx context.Context) (bool, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	return c.mayCreate(ctx, "nodeclient")
}

// mayCreate asks the API server whether the credential may create certificate requests or a subresource of them.
func (c *Client) mayCreate(ctx context.Context, subresource string) (bool, error) {
	type attributes struct {
		Verb        string `json:"verb"`
		Group       string `json:"group"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource,omitempty"`
	}
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1",
		"kind":       "SelfSubjectAccessReview",
		"spec":       map[string]any{"resourceAttributes": attributes{"create", "certificates.k8s.io", "certificatesigningrequests", subresource}},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false, fmt.Errorf("internal error: %w", err)
	}
	answer, err := c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return false, fmt.Errorf("cannot ask what the credential is allowed: %w", plain(err))
	}
	var got struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return false, fmt.Errorf("cannot read what the credential is allowed: %w", err)
	}
	return got.Status.Allowed, nil
}

// oldest is the oldest API server that a supported kubelet works with.
var oldest = version.MajorMinor(1, 29)

// skew compares the API server's version with kubelet's (kubernetes.io, "Version Skew Policy": kubelet must not be newer).
func skew(server, kubelet string) error {
	has, err := version.ParseGeneric(server)
	if err != nil {
		return &Fault{Layer: LayerHTTP, Message: fmt.Sprintf("the API server tells an unknown version, %q", server), Remedy: "check node.kubelet.serverURL", Err: err}
	}
	if has.LessThan(oldest) {
		return &Fault{Layer: LayerVersion, Message: fmt.Sprintf("the cluster runs Kubernetes %s; %s is the oldest that works", server, oldest), Remedy: "upgrade the cluster"}
	}
	want, err := version.ParseGeneric(kubelet)
	if err != nil {
		return nil
	}
	if version.MajorMinor(has.Major(), has.Minor()).LessThan(version.MajorMinor(want.Major(), want.Minor())) {
		return &Fault{
			Layer:   LayerVersion,
			Message: fmt.Sprintf("kubelet %s is newer than the cluster, which runs %s", kubelet, server),
			Remedy:  fmt.Sprintf("set kubernetes.version to %d.%d or older", has.Major(), has.Minor()),
		}
	}
	return nil
}

// ServerVersion returns the API server's version, as v1.35.4.
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	ctx, cancel := brief(ctx)
	defer cancel()
	body, err := c.rest.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("cannot ask for the cluster's version: %w", plain(err))
	}
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("cannot read the cluster's version: %w", err)
	}
	return info.GitVersion, nil
}
