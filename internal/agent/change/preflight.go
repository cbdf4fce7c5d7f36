package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// preflight checks, before any change, whether this machine can become the node; the error has all
// obstacles. It uses the network only for what is new. A standing target needs no fit machine.
func preflight(ctx context.Context, h *Home, t *Target) error {
	c := t.Input.Config
	e := inspect.NewEvidence(h.Node, c)
	err := inspect.MachineEvidence(ctx, h.Node, t.seen, &e)
	if err == nil && !t.standing {
		err = health.Problem(health.Evaluate(health.Preflight, e))
	}
	if err = cmp.Or(err, stays(h, c), unknownFirewalls(t)); err != nil {
		return err
	}
	if !t.unchanged {
		for _, caution := range health.Cautions(e) {
			// A managed firewall will be opened.
			if caution.Type != health.FirewallOpen || c.Network.Firewall != config.FirewallManage {
				h.Warn("%s", caution.Message)
			}
		}
	}
	if err := findAgain(ctx, h, t); err != nil || t.unchanged && access.Held(h.Node, c) {
		return err
	}
	if err := t.Locator.Ready(ctx, c, t.seen); err != nil {
		return err
	}
	if t.At, err = t.Locator.Locate(ctx, c); err != nil {
		return err
	}
	return inTurn(ctx,
		func(ctx context.Context) error { return sameCluster(ctx, h, c, t.At) },
		func(ctx context.Context) error { return reach(ctx, h, t, &e) },
		func(ctx context.Context) error { return tryProvider(ctx, h, t) })
}

// stays returns an error if a configuration changes what a node keeps until it leaves.
func stays(h *Home, c config.Config) error {
	if h.Saved.Live == nil || !h.Saved.Joined() {
		return nil
	}
	was, dir := cmp.Or(h.Saved.Applied, h.Saved.Live).Config, c.Paths.Kubernetes.KubeletDir
	arc, err := access.Record(h.Records())
	switch {
	case err != nil:
		return err
	case was.Agent.NodeName != c.Agent.NodeName: // kubelet's state is of the former node
		return fmt.Errorf("cannot become Node %s: this machine is Node %s; run "+
			"`aks-flex-node unbootstrap` first", c.Agent.NodeName, was.Agent.NodeName)
	case was.Paths.Kubernetes.KubeletDir != dir:
		err = fmt.Errorf("cannot move kubelet's directory of a node to %s", dir)
	case c.Azure.ArcEnabled() && arc.Moves(c.Azure):
		err = fmt.Errorf("cannot move the Arc machine of a node to %s in the resource group %s",
			c.Azure.Arc.MachineName, c.Azure.Arc.ResourceGroup)
	case was.Azure.AuthMode() == config.AuthArc && c.Azure.AuthMode() != config.AuthArc && arc.Owes():
		err = errors.New("cannot leave Azure Arc by a change")
	default:
		return nil
	}
	return &transition.Outcome{Kind: transition.Refused,
		Err: fmt.Errorf("%w: run `aks-flex-node unbootstrap` first", err)}
}

// reach checks that the API server can be reached, accepts the credential, and works with the
// configured version, and that no other machine is the Node, as the original of a renamed copy is.
// A joined node's credential is proved later, bypassing caches.
func reach(ctx context.Context, h *Home, t *Target, e *health.Evidence) error {
	c := t.Input.Config
	if !h.Saved.Joined() || !access.Held(h.Node, c) {
		inspect.ProbeEvidence(ctx, h.Node, t.At, e)
		if err := health.Problem(health.Evaluate(health.Preflight, *e)); err != nil {
			return err
		}
		if err := inspect.Allowed(ctx, h.Node, c, t.At); err != nil {
			return err
		}
	}
	wanted, was, joined := c.Kubernetes.Version, h.Saved.Applied, h.Saved.Joined()
	e.ServerVersion = health.Answered(ServerVersion(ctx, h, t))
	if wanted != "" && was != nil && was.Config.Kubernetes.Version != wanted &&
		!e.ServerVersion.OK() {
		return fmt.Errorf("cannot change kubelet's version to %s: %w", wanted, e.ServerVersion.Err)
	}
	if (!joined || e.ServerVersion.OK()) && showsWho(ctx, h, c) {
		e.Node = inspect.AskNode(ctx, h.Node, access.JoinClient, c, t.At) // not everyone may read it
		if joined && kube.Ready(e.Node.Value).Status != corev1.ConditionTrue {
			e.Node = health.Answer[kube.Node]{} // it may be this node's, restored to another machine
		}
	}
	return health.Problem(health.Evaluate(health.Preflight, *e))
}

// showsWho reports whether a credential exists: it does not before enrolment with Arc.
func showsWho(ctx context.Context, h *Home, c config.Config) bool {
	return c.Azure.AuthMode() != config.AuthArc || inspect.EnrolledBefore(h.Node) ||
		access.MachineID(ctx, h.Node, c) != ""
}

// unowned checks that the Node to be registered does not belong to another machine.
func unowned(ctx context.Context, w *work) error {
	if w.Saved.Joined() {
		return nil
	}
	e := inspect.NewEvidence(w.Node, w.config)
	e.Node = inspect.AskNode(ctx, w.Node, access.JoinClient, w.config, w.target())
	if err := inspect.SeeMachine(ctx, w.Node, &e); err != nil {
		return err
	}
	return health.Problem(health.Evaluate(health.Preflight, e))
}

// managedFirewalls returns the owner's firewalls, and those that the node has opened.
func managedFirewalls(h *Home, c config.Config, seen host.Facts) []state.Firewall {
	if c.Network.Firewall != config.FirewallManage {
		return nil
	}
	list := slices.Clone(seen.Firewalls)
	if h.Saved.Applied != nil {
		list = append(list, h.Saved.Applied.Facts.Firewalls...)
	}
	slices.SortFunc(list, func(a, b state.Firewall) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Hook, b.Hook))
	})
	return slices.Compact(list)
}

// unknownFirewalls returns the error of finding a new node's firewalls; nil if that is irrelevant.
func unknownFirewalls(t *Target) error {
	if t.seen.FirewallErr == nil || t.unchanged ||
		t.Input.Config.Network.Firewall != config.FirewallManage {
		return nil
	}
	return fmt.Errorf("cannot find the firewalls to open (network.firewall: manage): %w",
		t.seen.FirewallErr)
}

// findAgain finds the API server again if its name no longer resolves, or its certificate is from
// another CA. The target becomes a change if it has moved and is the same cluster.
func findAgain(ctx context.Context, h *Home, t *Target) error {
	if !h.Saved.Joined() || t.moved {
		return nil
	}
	c := t.Input.Config
	fault := kube.Probe(ctx, kube.Target{
		Server: h.Saved.Bindings.Server, CA: []byte(h.Saved.Bindings.CA),
		Options: h.Options(c),
	})
	if !kube.Rebind(fault) {
		return nil
	}
	t.Locator.Again = true
	at, err := t.Locator.Locate(ctx, c)
	if err != nil {
		return fmt.Errorf("the API server has moved (%w), and its new address cannot be found: %w",
			fault, err)
	}
	b := h.Saved.Bindings
	if at.Server == b.Server && kube.Unite(at.CA, b.CA) == kube.Unite(b.CA, "") {
		if !c.Located() {
			return nil // Azure has nothing new; the gate and the conditions report what is wrong
		}
		e := inspect.NewEvidence(h.Node, c)
		e.Probe = health.Tried(fault)
		return health.Problem(health.Evaluate(health.Preflight, e))
	}
	t.moved, t.At = true, at
	return sameCluster(ctx, h, c, at)
}

// sameCluster refuses another cluster: kubelet's state must not be used with it. It compares the
// uid of the Service default/kubernetes, as address and CA may change. A kubelet that has lost its
// certificate joins again with an identity that may not read it: then the cluster's name decides.
func sameCluster(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) error {
	if !h.Saved.Joined() || at == h.Saved.At() {
		return nil
	}
	known := h.Saved.Bindings.ClusterUID
	// The API server may not have the new CA yet.
	either := inspect.Cluster{Server: at.Server, CA: kube.Unite(at.CA, h.Saved.Bindings.CA)}
	uid, err := inspect.Ask(ctx, h.Node, access.JoinClient, c, either, (*kube.Client).ClusterUID)
	unknown, forbidden := apierrors.IsUnauthorized(err), apierrors.IsForbidden(err)
	switch _, same := NewLocator(h).Proved(c); {
	case same && (unknown || forbidden) && !access.Held(h.Node, c):
	case unknown:
		return fmt.Errorf("cannot use %s: it does not accept this node's credential; if it is the same "+
			"cluster, run `aks-flex-node unbootstrap` and join with a new configuration", at.Server)
	case err != nil:
		return fmt.Errorf("cannot check whether %s is this node's cluster: %w", at.Server, err)
	case known == "" && at.Server != h.Saved.Bindings.Server &&
		!kube.SharesCA(at.CA, h.Saved.Bindings.CA),
		known != "" && uid != known:
		return fmt.Errorf("cannot join %s: this machine is a node of another cluster, %s; "+
			"run `aks-flex-node unbootstrap` first", at.Server, h.Saved.Bindings.Server)
	}
	return nil
}
