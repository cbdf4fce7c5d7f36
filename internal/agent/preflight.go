package agent

import (
	"context"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
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
		h.caution(c, e)
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
	if err := h.reach(ctx, t, &e); err != nil {
		return err
	}
	return h.tryProvider(ctx, t)
}

// caution tells, before anything is touched, what is wrong with the machine and keeps nothing from
// being done. Firewalls that are managed are opened with the node.
func (h *home) caution(c config.Config, e health.Evidence) {
	for _, caution := range health.Cautions(e) {
		if caution.Type != health.FirewallOpen || c.Network.Firewall != config.FirewallManage {
			h.warn("%s", caution.Message)
		}
	}
}

// reach makes sure that the API server can be reached, accepts the credential, and goes together
// with the configured version. The credential of a node that has joined is proved later, past every
// cache.
func (h *home) reach(ctx context.Context, t *target, e *health.Evidence) error {
	c := t.input.Config
	if !h.saved.Joined() || !h.credentialed(c) {
		h.probeEvidence(ctx, c, t.at, e)
		if err := health.Problem(health.Evaluate(health.Preflight(), *e)); err != nil {
			return err
		}
		if err := h.allowed(ctx, c, t.at); err != nil {
			return err
		}
	}
	if !h.saved.Joined() && h.showsWho(ctx, c) {
		e.Node = h.registered(ctx, c, t.at)
		if err := health.Problem(health.Evaluate(health.Preflight(), *e)); err != nil {
			return err
		}
	}
	wanted := c.Kubernetes.Version
	e.ServerVersion = health.Answered(h.serverVersion(ctx, t))
	if wanted == "" {
		return nil
	}
	was := h.saved.Applied
	if was != nil && was.Config.Kubernetes.Version != wanted && !e.ServerVersion.OK() {
		return fmt.Errorf("cannot change kubelet's version to %s: %w", wanted, e.ServerVersion.Err)
	}
	return health.Problem(health.Evaluate(health.Preflight(), *e))
}

// showsWho tells whether there is a credential already: a machine that is still to be enrolled with
// Arc has none.
func (h *home) showsWho(ctx context.Context, c config.Config) bool {
	return c.Azure.AuthMode() != config.AuthArc || h.enrolledBefore() || h.arcMachine(ctx, c) != ""
}

// registered is the Node object that has this node's name already. Not every credential may read
// it.
func (h *home) registered(
	ctx context.Context, c config.Config, at where,
) health.Answer[kube.Node] {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	client, err := h.joinClient(ctx, c, at)
	if err != nil {
		return health.Answered(kube.Node{}, err)
	}
	defer client.Close()
	return health.Answered(client.Node(ctx, c.Agent.NodeName))
}

// unowned makes sure that the Node object which a machine is about to register is not that of
// another machine, where no credential could tell before.
func (w *work) unowned(ctx context.Context) error {
	if w.saved.Joined() {
		return nil
	}
	c := w.config
	seen, err := w.Machine.Facts(ctx, w.query(c))
	if err != nil {
		return err
	}
	e := health.Evidence{Now: now(), Wanted: w.wanted(c), Node: w.registered(ctx, c, w.target())}
	if e.Machine, err = w.machineEvidence(ctx, c, seen); err != nil {
		return err
	}
	return health.Problem(health.Evaluate(health.Preflight(), e))
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
	connected := h.arcMachine(ctx, c) != ""
	if mode == config.AuthArc {
		err := h.arcReady(ctx, c, t.seen)
		if err == nil && !connected {
			err = h.onboardable(ctx, c) // it reads the cluster too
		}
		if err != nil {
			return err
		}
	}
	at, err := t.locator.locate(ctx, c)
	if err == nil && connected && !h.admitted(ctx, c, at) {
		err = h.onboardable(ctx, c)
	}
	if err != nil {
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
