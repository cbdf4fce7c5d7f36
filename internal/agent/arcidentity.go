package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

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
func (h *home) withGiven(c config.Config) config.Config {
	if c.Azure.AuthMode() != config.AuthArc || c.Azure.ServicePrincipal == nil || onboards(c.Azure) ||
		h.Given == nil {
		return c
	}
	given := h.Given()
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
func (h *home) renewOnboarding(ctx context.Context, id string, c config.Config) error {
	kept, given := h.saved.Secrets[id], c.Credentials().ClientSecret
	if c.Azure.AuthMode() != config.AuthArc || given == "" || given == kept.ClientSecret {
		return nil
	}
	kept.ClientSecret = given
	h.saved.Secrets[id] = kept
	return h.saved.SaveSecrets(ctx)
}

// arcMachine is the ARM id of the Arc machine that this machine is already, "" when it is none or
// Azure no longer accepts it.
func (h *home) arcMachine(ctx context.Context, c config.Config) string {
	if c.Azure.AuthMode() != config.AuthArc {
		return ""
	}
	s, err := h.arc(c, nil).Status(ctx)
	if err != nil || s.Agent == arc.Expired {
		return ""
	}
	return s.MachineID
}

// managers are the credentials that may ask Azure about the cluster, in the order in which they are
// tried: an Arc machine that nobody onboards speaks for itself first.
func (h *home) managers(ctx context.Context, c config.Config) ([]azcore.TokenCredential, error) {
	other, err := h.manager(c)
	if err != nil {
		return nil, err
	}
	if onboards(c.Azure) || h.arcMachine(ctx, c) == "" {
		return []azcore.TokenCredential{other}, nil
	}
	own, err := identity.Kubelet(c.Azure, c.ProxyFunc())
	return []azcore.TokenCredential{own, other}, err
}

// admitted tells whether this machine is an Arc machine already whose identity the cluster
// authorises, so that nobody has to onboard it.
func (h *home) admitted(ctx context.Context, c config.Config, at where) bool {
	if h.arcMachine(ctx, c) == "" {
		return false
	}
	token, err := freshToken(ctx, c)
	if err != nil {
		return false
	}
	ok, err := h.authorised(ctx, c, at, token.Value)
	return err == nil && ok
}

// assigns tells whether the agent gives the Arc identity its roles.
func assigns(c config.Config) bool {
	a := c.Azure.Arc
	return a.AutoRoleAssignment != nil && *a.AutoRoleAssignment && len(a.Roles) > 0
}

// onboardable makes sure that somebody can make the machine an Arc machine and authorise it:
// whoever does is logged in and may do all that it takes. Nothing has been touched yet.
func (h *home) onboardable(ctx context.Context, c config.Config) error {
	connected := h.arcMachine(ctx, c) != ""
	if h.enrolledBefore() || connected && !onboards(c.Azure) && !assigns(c) {
		return nil // the latter waits until somebody gives it what it lacks
	}
	if err := h.loggedIn(ctx, c, "register the machine with Azure Arc"); err != nil {
		return err
	}
	return h.permitted(ctx, c, connected)
}

// permitted makes sure that whoever onboards the machine may do so, and warns when the same
// identity cannot take it back.
func (h *home) permitted(ctx context.Context, c config.Config, connected bool) error {
	a := h.arc(c, nil)
	var err error
	if a.Credential, err = h.manager(c); err != nil {
		return err
	}
	gaps, principal, err := a.Gaps(ctx, arc.Wanting{Located: located(c), Connected: connected})
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
		h.warn("the identity %s can enrol the machine with Azure Arc and cannot take that back; for "+
			"unbootstrap it needs, and an owner gives it with:\n%s", principal,
			arc.Explain(later, principal))
	}
	return nil
}

// lacking says what the identity of an Arc machine needs, and how an owner gives it that.
func lacking(c config.Config, principal string) string {
	roles, scope := c.Azure.Arc.Roles, c.Azure.TargetCluster.ResourceID
	_, needed := requiredAccess(c)
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
