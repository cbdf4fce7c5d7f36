package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Ready makes sure, before anything is touched, that Azure knows the identity that a configuration
// names, that the Arc agent is installed or can be, and that the cluster takes such a node.
func (l *Locator) Ready(ctx context.Context, c config.Config, seen host.Facts) error {
	a := l.Azure
	mode := c.Azure.AuthMode()
	if mode == config.AuthBootstrapToken {
		return nil
	}
	connected := MachineID(ctx, a.Node, c) != ""
	if mode == config.AuthArc {
		_, err := a.arc(c, nil).Status(ctx)
		if errors.Is(err, arc.ErrNotInstalled) {
			err = a.Package(seen, nil).Check(c)
		}
		if err == nil && !connected {
			err = a.onboardable(ctx, c, connected) // it reads the cluster too
		}
		if err != nil {
			return err
		}
	}
	at, err := l.Locate(ctx, c)
	if err == nil && connected && !a.admitted(ctx, c, at) {
		err = a.onboardable(ctx, c, connected)
	}
	if err != nil || l.Asked == nil {
		return err
	}
	return takes(*l.Asked, c)
}

// takes is an error when a cluster does not authenticate or authorise as configured.
func takes(cluster aks.Cluster, c config.Config) error {
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

// onboardable makes sure that there is a login that may make the machine an Arc machine and
// authorise it, and warns when it cannot take that back. Nothing has been touched yet.
func (a *Azure) onboardable(ctx context.Context, c config.Config, connected bool) error {
	if a.enrolledBefore() || connected && !c.Azure.Onboards() && !arc.Assigns(c.Azure) {
		return nil // the latter waits until an owner gives it what it lacks
	}
	conversation := a.arc(c, nil)
	var err error
	conversation.Credential, err = a.loggedIn(ctx, c, "register the machine with Azure Arc")
	if err != nil {
		return err
	}
	wanting := arc.Wanting{Located: c.Located(), Connected: connected}
	gaps, principal, err := conversation.Gaps(ctx, wanting)
	if err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(gaps, func(g arc.Gap) bool { return !g.Later }):
		return fmt.Errorf("cannot enrol the machine with Azure Arc: the identity %s lacks permissions; "+
			"nothing was changed. It needs, and an owner gives it with:\n%s\nA role assignment takes some "+
			"minutes to have an effect", principal, arc.Explain(gaps, principal))
	case len(gaps) > 0:
		a.Node.Warn("the identity %s can enrol the machine with Azure Arc and cannot take that back; "+
			"for unbootstrap it needs, and an owner gives it with:\n%s", principal,
			arc.Explain(gaps, principal))
	}
	return nil
}

// Prove makes sure that a changed credential works before anything relies on it: one fresh token
// from the issuer, past every cache, and one call of the API server with it. A forbidden caller has
// been recognised.
func Prove(
	ctx context.Context, m Machine, c config.Config, at transition.Cluster,
) error {
	if c.Azure.BootstrapToken != nil {
		return nil
	}
	token, err := Fresh(ctx, c)
	if identity.Refused(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	if err != nil {
		return err
	}
	client, err := kube.FromToken(at.Server, []byte(at.CA), token.Value, m.Options(c))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err = client.WhoAmI(ctx); errors.Is(err, kube.ErrUnauthorized) {
		return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf("cannot use the "+
			"configured identity: the API server does not accept its token (401); check "+
			"azure.tenantId and %s",
			strings.TrimPrefix(string(c.Azure.AuthMode()), "azure."))}
	}
	return err
}

// SameIdentity reports whether two configurations authenticate as the same identity with the same
// secret. One that cannot be read is like no other.
func SameIdentity(a, b config.Config) bool {
	one, err1 := identity.Key(a.Azure)
	two, err2 := identity.Key(b.Azure)
	return errors.Join(err1, err2) == nil && one == two && a.Azure.AuthMode() == b.Azure.AuthMode()
}
