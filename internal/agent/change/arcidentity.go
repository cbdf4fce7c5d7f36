package change

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// onboards tells whether there is a service principal that enrols the machine. The secret of one is
// not kept once the machine is enrolled.
func onboards(c config.Azure) bool {
	sp := c.ServicePrincipal
	return sp != nil &&
		(sp.ClientSecret != "" || sp.ClientSecretFile != "" || sp.CertificateFile != "")
}

// withGiven is a configuration with the secret of the service principal that enrols the machine, as
// its owner has it still: it is not kept on the machine.
func withGiven(h *Home, c config.Config) config.Config {
	if c.Azure.AuthMode() != config.AuthArc || c.Azure.ServicePrincipal == nil || onboards(c.Azure) ||
		h.Agent.Given == nil {
		return c
	}
	given := h.Agent.Given()
	if given == nil || given.Azure.ServicePrincipal == nil ||
		given.Azure.ServicePrincipal.ClientID != c.Azure.ServicePrincipal.ClientID {
		return c
	}
	credentials := c.Credentials()
	credentials.ClientSecret = given.Credentials().ClientSecret
	return c.WithCredentials(credentials)
}

// renewOnboarding gives a generation that is being joined the secret that enrols the machine as it
// is configured now: another one makes no other document.
func renewOnboarding(ctx context.Context, h *Home, id string, c config.Config) error {
	kept, given := h.Saved.Secrets[id], c.Credentials().ClientSecret
	if c.Azure.AuthMode() != config.AuthArc || given == "" || given == kept.ClientSecret {
		return nil
	}
	kept.ClientSecret = given
	h.Saved.Secrets[id] = kept
	return h.Store.SaveSecrets(ctx)
}

// managers are the credentials that may ask Azure about the cluster, in the order in which they are
// tried: an Arc machine that nobody onboards speaks for itself first.
func managers(ctx context.Context, h *Home, c config.Config) ([]azcore.TokenCredential, error) {
	other, err := manager(h, c)
	if err != nil {
		return nil, err
	}
	if onboards(c.Azure) || inspect.ArcMachineID(ctx, h.Node, c) == "" {
		return []azcore.TokenCredential{other}, nil
	}
	own, err := identity.Kubelet(c.Azure, c.ProxyFunc())
	return []azcore.TokenCredential{own, other}, err
}

// admitted tells whether this machine is an Arc machine already whose identity the cluster
// authorises, so that nobody has to onboard it.
func admitted(ctx context.Context, h *Home, c config.Config, at inspect.Cluster) bool {
	if inspect.ArcMachineID(ctx, h.Node, c) == "" {
		return false
	}
	token, err := inspect.FreshToken(ctx, c)
	if err != nil {
		return false
	}
	ok, err := inspect.Authorised(ctx, h.Node, c, at, token.Value)
	return err == nil && ok
}

// assigns tells whether the agent gives the Arc identity its roles.
func assigns(c config.Config) bool {
	a := c.Azure.Arc
	return a.AutoRoleAssignment != nil && *a.AutoRoleAssignment && len(a.Roles) > 0
}

// onboardable makes sure that somebody can make the machine an Arc machine and authorise it:
// whoever does is logged in and may do all that it takes. Nothing has been touched yet.
func onboardable(ctx context.Context, h *Home, c config.Config) error {
	connected := inspect.ArcMachineID(ctx, h.Node, c) != ""
	if inspect.EnrolledBefore(h.Node) || connected && !onboards(c.Azure) && !assigns(c) {
		return nil // the latter waits until somebody gives it what it lacks
	}
	if err := loggedIn(ctx, h, c, "register the machine with Azure Arc"); err != nil {
		return err
	}
	return permitted(ctx, h, c, connected)
}

// permitted makes sure that whoever onboards the machine may do so, and warns when the same
// identity cannot take it back.
func permitted(ctx context.Context, h *Home, c config.Config, connected bool) error {
	a := newArc(h, c, nil)
	var err error
	if a.Credential, err = manager(h, c); err != nil {
		return err
	}
	gaps, principal, err := a.Gaps(ctx, arc.Wanting{Located: inspect.Located(c), Connected: connected})
	if err != nil {
		return err
	}
	var now, later []arc.Gap
	for _, gap := range gaps {
		if gap.Later {
			later = append(later, gap)
		} else {
			now = append(now, gap)
		}
	}
	if len(now) > 0 {
		return fmt.Errorf("cannot enrol the machine with Azure Arc: the identity %s lacks permissions; "+
			"nothing was changed. It needs, and an owner gives it with:\n%s\nA role assignment takes some "+
			"minutes to have an effect", principal, arc.Explain(gaps, principal))
	}
	if len(later) > 0 {
		h.Warn("the identity %s can enrol the machine with Azure Arc and cannot take that back; for "+
			"unbootstrap it needs, and an owner gives it with:\n%s", principal,
			arc.Explain(later, principal))
	}
	return nil
}

// lacking says what the identity of an Arc machine needs, and how an owner gives it that.
func lacking(c config.Config, principal string) string {
	roles, scope := c.Azure.Arc.Roles, c.Azure.TargetCluster.ResourceID
	_, needed := inspect.RequiredAccess(c)
	if !c.Azure.ShowsToken() && len(roles) == 0 {
		return fmt.Sprintf("the identity %s of the Arc machine needs %s", principal, needed)
	}
	if len(roles) == 0 {
		roles = []string{config.RoleRBACClusterAdmin}
	}
	var commands []string
	for _, role := range roles {
		commands = append(commands, "  "+arc.GrantCommand(principal, role, scope))
	}
	return fmt.Sprintf("the identity %s of the Arc machine needs on %s:\n%s", principal, scope,
		strings.Join(commands, "\n"))
}
