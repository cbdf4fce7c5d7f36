package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// preflight finds out, before anything is touched, whether this machine can become the node: all
// that stands against it is in the error. The network is asked only for what is new.
func (h *home) preflight(ctx context.Context, t *target) error {
	c := t.input.Config
	e := health.Evidence{Now: now(), Wanted: h.wanted(c), Trust: health.Tried(h.trusted())}
	var err error
	if e.Machine, err = h.machineEvidence(ctx, c, t.seen); err != nil {
		return err
	}
	if err := health.Problem(health.Evaluate(health.Preflight(), e)); err != nil {
		return err
	}
	if err := h.sameNode(c); err != nil {
		return err
	}
	if err := unknownFirewalls(t); err != nil {
		return err
	}
	if !t.unchanged {
		h.warnOfFirewalls(c, e)
	}
	if err := h.follow(ctx, t); err != nil || t.unchanged && h.credentialed(c) {
		return err
	}
	if err := h.identifiable(ctx, t); err != nil {
		return err
	}
	if t.at, err = t.locator.locate(ctx, c); err != nil {
		return err
	}
	if err := h.sameCluster(ctx, c, t.at); err != nil {
		return err
	}
	return h.reach(ctx, t, &e)
}

// reach makes sure that the API server can be reached, accepts the credential, and goes together
// with the configured version. The credential of a node that has joined is proved later, past every
// cache.
func (h *home) reach(ctx context.Context, t *target, e *health.Evidence) error {
	c := t.input.Config
	if !h.joined() || !h.credentialed(c) {
		h.probeEvidence(ctx, c, t.at, e)
		if err := health.Problem(health.Evaluate(health.Preflight(), *e)); err != nil {
			return err
		}
		if err := h.allowed(ctx, c, t.at); err != nil {
			return err
		}
	}
	if server, err := h.serverVersion(ctx, t); err == nil {
		e.ServerVersion = health.Answered(server, nil)
	}
	if c.Kubernetes.Version == "" {
		return nil
	}
	return health.Problem(health.Evaluate(health.Preflight(), *e))
}

// allowed makes sure that the cluster authorises the configured identity to join.
func (h *home) allowed(ctx context.Context, c config.Config, at where) error {
	arc := c.Azure.AuthMode() == config.AuthArc && !h.enrolledBefore()
	if c.Azure.BootstrapToken != nil || arc || h.credentialed(c) && !c.Azure.ShowsToken() {
		return nil
	}
	token, err := h.joinToken(ctx, c)
	if err != nil {
		return err
	}
	ok, err := h.authorised(ctx, c, at, token)
	if err != nil || ok {
		return err
	}
	_, role := requiredAccess(c)
	return fmt.Errorf("cannot join the cluster: it does not authorise the configured identity, which "+
		"needs %s; a role assignment takes some minutes to have an effect", role)
}

// authorised tells whether the cluster lets the identity of a token do what kubelet must.
func (h *home) authorised(
	ctx context.Context, c config.Config, at where, token string,
) (bool, error) {
	client, err := kube.FromToken(at.Server, []byte(at.CA), token, h.options(c))
	if err != nil {
		return false, err
	}
	defer client.Close()
	access, _ := requiredAccess(c)
	ok, _, err := client.May(ctx, access)
	return ok, err
}

// requiredAccess is what kubelet's identity must be allowed in the cluster, and the role that
// allows it.
func requiredAccess(c config.Config) (kube.Access, string) {
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

// trusted makes sure that nobody but root can change the program that root and kubelet run.
func (h *home) trusted() error {
	if h.Trusted != nil {
		return h.Trusted(h.Program)
	}
	return config.Trusted(h.Program)
}

// identifiable makes sure, before anything is touched, that Azure knows who asks, and that the
// cluster takes such a node.
func (h *home) identifiable(ctx context.Context, t *target) error {
	c := t.input.Config
	mode := c.Azure.AuthMode()
	if mode == config.AuthBootstrapToken {
		return nil
	}
	if mode == config.AuthArc {
		if err := h.arc(c, nil).Check(ctx); err != nil {
			return err
		}
	}
	if err := h.loggedIn(ctx, c); err != nil {
		return err
	}
	if _, err := t.locator.locate(ctx, c); err != nil {
		return err
	}
	cluster := t.locator.asked
	if cluster == nil {
		return nil
	}
	name := c.Azure.TargetCluster.ResourceID
	switch {
	case !cluster.Entra:
		return fmt.Errorf("cannot join %s: it does not accept identities of Entra ID; enable that "+
			"(az aks update --enable-aad), or join with azure.bootstrapToken", name)
	case c.Azure.ShowsToken() && !cluster.AzureRBAC:
		return fmt.Errorf("cannot join %s with azure.kubeletCredential token: Azure's role assignments "+
			"do not authorise there; enable that (az aks update --enable-azure-rbac), or set "+
			"azure.kubeletCredential to certificate", name)
	}
	return nil
}

// loggedIn makes sure that the Azure CLI, where it is what onboards, has a valid login. At a
// terminal a person is asked to log in.
func (h *home) loggedIn(ctx context.Context, c config.Config) error {
	if c.Azure.AuthMode() != config.AuthArc || c.Azure.ServicePrincipal != nil || h.enrolledBefore() {
		return nil
	}
	ask := func() error {
		credential, err := identity.Manager(c.Azure, c.ProxyFunc())
		if err == nil {
			scopes := []string{c.Azure.ResourceManagerEndpoint + "/.default"}
			_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: scopes})
		}
		return err
	}
	if ask() == nil {
		return nil
	}
	const how = "log in with `az login --use-device-code --tenant %s` as root, or configure " +
		"azure.servicePrincipal"
	if !h.Terminal {
		return fmt.Errorf("cannot register the machine with Azure Arc: there is no valid login of the "+
			"Azure CLI, and no terminal to make one at; "+how, c.Azure.TenantID)
	}
	h.note("there is no valid login of the Azure CLI; logging in")
	err := h.Machine.RunOnTerminal(ctx, "az", "login", "--use-device-code",
		"--tenant", c.Azure.TenantID, "--output", "none")
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("cannot register the machine with Azure Arc: the Azure CLI (az) is not " +
			"installed; install it, or configure azure.servicePrincipal")
	}
	if err == nil {
		err = ask()
	}
	if err != nil {
		return fmt.Errorf("cannot register the machine with Azure Arc: the login did not succeed; "+how,
			c.Azure.TenantID)
	}
	return nil
}
