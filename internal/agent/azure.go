package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

// cluster tells where the API server is and how it is verified: as the configuration says, else as it was when the node was healthy,
// else as Azure says. Azure is asked once in a run.
func (s *session) cluster(ctx context.Context, c config.Config) (aks.Cluster, error) {
	given := aks.Cluster{Server: c.Node.Kubelet.ServerURL}
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
	if generation, before, ok, err := s.records.applied(); err != nil {
		return given, err
	} else if ok && strings.EqualFold(before.Azure.TargetCluster.ResourceID, c.Azure.TargetCluster.ResourceID) {
		return aks.Cluster{Server: first(given.Server, generation.Facts.Server), CA: first(given.CA, generation.Facts.CA)}, nil
	}
	if s.asked == nil {
		credential, err := identity.Manager(c.Azure, c.ProxyFunc())
		if err != nil {
			return given, err
		}
		client := aks.Client{Target: c.Azure.TargetCluster, Credential: credential, Options: identity.ARM(c.Azure, c.ProxyFunc())}
		found, err := client.Cluster(ctx)
		if err != nil {
			return given, err
		}
		s.asked = &found
	}
	found := *s.asked
	found.Server, found.CA = first(given.Server, found.Server), first(given.CA, found.CA)
	return found, nil
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// identifiable makes sure, before anything is touched, that Azure knows who asks, and that the cluster takes such a node.
func (s *session) identifiable(ctx context.Context, c config.Config) error {
	mode := c.Azure.AuthMode()
	if mode == config.AuthBootstrapToken {
		return nil
	}
	if mode == config.AuthArc {
		if err := s.arc(c, nil).Check(ctx); err != nil {
			return err
		}
	}
	if err := s.loggedIn(ctx, c); err != nil {
		return err
	}
	cluster, err := s.cluster(ctx, c)
	name := c.Azure.TargetCluster.ResourceID
	switch {
	case err != nil || s.asked == nil:
		return err
	case !cluster.Entra:
		return fmt.Errorf("cannot join %s: it does not accept identities of Entra ID; enable that (az aks update --enable-aad), or join with azure.bootstrapToken", name)
	case c.Azure.ShowsToken() && !cluster.AzureRBAC:
		return fmt.Errorf("cannot join %s with azure.kubeletCredential token: Azure's role assignments do not authorise there; enable that (az aks update --enable-azure-rbac), or set azure.kubeletCredential to certificate", name)
	}
	return nil
}

// loggedIn makes sure that the Azure CLI, where it is what onboards, has a login that is good. At a terminal it is made.
func (s *session) loggedIn(ctx context.Context, c config.Config) error {
	if c.Azure.AuthMode() != config.AuthArc || c.Azure.ServicePrincipal != nil {
		return nil
	}
	ask := func() error {
		credential, err := identity.Manager(c.Azure, c.ProxyFunc())
		if err == nil {
			_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{c.Azure.ResourceManagerEndpoint + "/.default"}})
		}
		return err
	}
	err := ask()
	if err == nil {
		return nil
	}
	const how = "log in with `az login --use-device-code --tenant %s` as root, or configure azure.servicePrincipal"
	if !s.Terminal {
		return fmt.Errorf("cannot register the machine with Azure Arc: there is no valid login of the Azure CLI, and no terminal to make one at; "+how, c.Azure.TenantID)
	}
	s.show(progress.Event{Kind: progress.Note, Text: "there is no valid login of the Azure CLI; logging in"})
	err = s.Machine.RunOnTerminal(ctx, "az", "login", "--use-device-code", "--tenant", c.Azure.TenantID, "--output", "none")
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("cannot register the machine with Azure Arc: the Azure CLI (az) is not installed; install it, or configure azure.servicePrincipal")
	}
	if err == nil {
		err = ask()
	}
	if err != nil {
		return fmt.Errorf("cannot register the machine with Azure Arc: the login did not work; "+how, c.Azure.TenantID)
	}
	return nil
}

// needed is what kubelet's identity must be allowed in the cluster, and the role that allows it.
func needed(c config.Config) (kube.Access, string) {
	if c.Azure.ShowsToken() {
		return kube.Access{Verb: "create", Resource: "nodes"}, fmt.Sprintf("the role %q on %s", config.RoleRBACClusterAdmin, c.Azure.TargetCluster.ResourceID)
	}
	return kube.Access{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, "the ClusterRole system:node-bootstrapper in the cluster (docs/security.md has the manifest)"
}

// kubeletToken gets a token for kubelet from its issuer, and keeps it nowhere.
func (s *session) kubeletToken(ctx context.Context, c config.Config) (string, error) {
	credential, err := identity.Kubelet(c.Azure, c.ProxyFunc())
	if err != nil {
		return "", err
	}
	token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{identity.AKSServer + "/.default"}})
	if err != nil {
		return "", identity.Explain(err, identity.KubeletToken(c.Azure))
	}
	return token.Token, nil
}

// authorised tells whether the cluster lets the identity of a token do what kubelet must.
func (s *session) authorised(ctx context.Context, c config.Config, token string) (bool, error) {
	where, err := s.cluster(ctx, c)
	if err != nil {
		return false, err
	}
	cluster, err := kube.FromToken(where.Server, []byte(where.CA), token, c.ProxyFunc())
	if err != nil {
		return false, err
	}
	defer cluster.Close()
	access, _ := needed(c)
	ok, _, err := cluster.May(ctx, access)
	return ok, err
}

// Token returns kubelet's token for the API server: from this machine's cache, else from the issuer.
func (a *Agent) Token(ctx context.Context) (identity.Token, error) {
	_, c, ok, err := records{host: a.Machine, dir: StateDir}.generation(currentFile)
	if err == nil && !ok {
		err = errors.New("cannot make a token: this machine is not a node")
	}
	if err != nil {
		return identity.Token{}, err
	}
	key, err := json.Marshal(c.Azure) // redacted: a new secret of the same identity needs no new token
	if err != nil {
		return identity.Token{}, fmt.Errorf("internal error: %w", err)
	}
	cache := identity.Cache{
		Dir: a.path(RunDir), Key: digest(key), Scope: identity.AKSServer + "/.default", Now: a.Now, Need: identity.KubeletToken(c.Azure),
		Warn:       func(err error) { a.warn("%v", err) },
		Credential: func() (identity.Credential, error) { return identity.Kubelet(c.Azure, c.ProxyFunc()) },
	}
	return cache.Token(ctx)
}

// issued is when a token was issued; the zero time when it does not say (RFC 7519, section 4.1.6).
func issued(token string) time.Time {
	var claims struct {
		IssuedAt int64 `json:"iat"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return time.Time{}
	}
	return time.Unix(claims.IssuedAt, 0)
}
