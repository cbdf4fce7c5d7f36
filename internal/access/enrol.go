package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// rolesTimeout limits the time until role assignments have an effect.
const rolesTimeout = 30 * time.Minute

// arc returns the conversation with Azure Arc. say shows what is being waited for.
func (a *Azure) arc(c config.Config, say func(string, ...any)) arc.Arc {
	conversation := agent(a.Node, c)
	conversation.Restart, conversation.Say = a.Machine.RestartUnit, say
	conversation.Poll = a.Node.Every(0)
	conversation.Save = func(r arc.Record) error {
		return a.Store.Save(context.Background(), RecordFile, r)
	}
	return conversation
}

// Enrolled reports whether there is a record of an enrolment of this machine.
func (a *Azure) Enrolled() (bool, error) {
	return a.Records.Load(RecordFile, &arc.Record{})
}

// enrolledBefore reports whether the machine was enrolled with Arc by an earlier run.
func (a *Azure) enrolledBefore() bool {
	record, err := Record(a.Records)
	live, _ := a.Proved()
	return err == nil && record.MachineID != "" && live != nil
}

// Enrolment is an Arc machine whose identity the cluster is to authorise.
type Enrolment struct {
	// Principal is the object id of its identity; assigned is when its newest role was.
	Principal string
	assigned  time.Time
}

// Enrol makes the machine an Arc machine, unless it is one that the cluster at the given address
// authorises or that an owner is to authorise. doing shows what goes on.
func (a *Azure) Enrol(
	ctx context.Context, c config.Config, at transition.Cluster, doing func(text string),
) (e Enrolment, err error) {
	record, err := Record(a.Records)
	if err != nil {
		return e, err
	}
	c = a.withGiven(c)
	conversation := a.arc(c, func(format string, args ...any) { doing(fmt.Sprintf(format, args...)) })
	if !c.Azure.Onboards() && MachineID(ctx, a.Node, c) != "" &&
		(a.admitted(ctx, c, at) || !arc.Assigns(c.Azure)) {
		token, err := JoinToken(ctx, a.Node, c)
		e.Principal = identity.ClaimsOf(token).ObjectID
		return e, errors.Join(err, conversation.Adopt(ctx, record))
	}
	conversation.Credential, err = a.loggedIn(ctx, c, "register the machine with Azure Arc")
	if err == nil {
		e.Principal, e.assigned, err = conversation.Enrol(ctx, record)
	}
	return e, err
}

// withGiven returns a configuration with the secret of the service principal that enrols the
// machine, as its owner still has it: it is not kept on the machine.
func (a *Azure) withGiven(c config.Config) config.Config {
	if c.Azure.AuthMode() != config.AuthArc || c.Azure.ServicePrincipal == nil ||
		c.Azure.Onboards() || a.Given == nil {
		return c
	}
	given := a.Given()
	if given == nil || given.Azure.ServicePrincipal == nil ||
		given.Azure.ServicePrincipal.ClientID != c.Azure.ServicePrincipal.ClientID {
		return c
	}
	credentials := c.Credentials()
	credentials.ClientSecret = given.Credentials().ClientSecret
	return c.WithCredentials(credentials)
}

// admitted reports whether this machine is an Arc machine already whose identity the cluster
// authorises, so that it need not be onboarded.
func (a *Azure) admitted(ctx context.Context, c config.Config, at transition.Cluster) bool {
	if MachineID(ctx, a.Node, c) == "" {
		return false
	}
	token, err := Fresh(ctx, c)
	if err != nil {
		return false
	}
	ok, err := Authorised(ctx, a.Node, c, at, token.Value)
	return err == nil && ok
}

// WaitAuthorised waits until the cluster lets the Arc identity do what kubelet must. Where an owner
// has to give it its roles, it says which. The machine's metadata service keeps tokens: one that is
// older than the newest role assignment is dropped, once, by restarting that service.
func (a *Azure) WaitAuthorised(
	ctx context.Context, c config.Config, at transition.Cluster, e Enrolment, doing func(string),
) error {
	ctx, cancel := context.WithTimeout(ctx, rolesTimeout)
	defer cancel()
	pauses := wait.Backoff{Base: a.Node.Every(2 * time.Second), Max: 15 * time.Second}
	restarted, told := false, arc.Assigns(c.Azure)
	for began := time.Now(); ; {
		token, err := JoinToken(ctx, a.Node, c)
		if err != nil {
			return err
		}
		issued := time.Unix(int64(identity.ClaimsOf(token).Issued), 0) // in whole seconds
		if !restarted && issued.Before(e.assigned.Truncate(time.Second)) {
			restarted = true
			doing("restarting the Arc agent's metadata service, whose token is older than the role " +
				"assignment")
			if err := a.Machine.RestartUnit(ctx, "himdsd.service"); err != nil {
				return err
			}
			continue
		}
		ok, err := Authorised(ctx, a.Node, c, at, token)
		if err != nil || ok {
			return err
		}
		if !told {
			told = true
			a.Node.Note("waiting, for up to %s, until an owner authorises this machine: %s",
				rolesTimeout, lacking(c, e.Principal))
		}
		waited := time.Since(began).Truncate(time.Second)
		doing(fmt.Sprintf("waiting for the role assignments to have an effect (%s)", waited))
		if !wait.Sleep(ctx, pauses.Next()) {
			return fmt.Errorf("cannot use the identity of the Arc machine: the cluster did not authorise "+
				"it within %s; %s", waited, lacking(c, e.Principal))
		}
	}
}

// lacking says what the identity of an Arc machine needs, and how an owner gives it that.
func lacking(c config.Config, principal string) string {
	roles, scope := c.Azure.Arc.Roles, c.Azure.TargetCluster.ResourceID
	_, needed := Required(c)
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

// Leave takes back what the agent did in Azure Arc, as the identity of a configuration; nil when
// none is known. What another did before remains.
func (a *Azure) Leave(ctx context.Context, c *config.Config) error {
	record, err := Record(a.Records)
	if err != nil || !record.Owes() {
		return err
	}
	if c == nil {
		return errors.New("cannot leave Azure Arc: no configuration says as whom; give it with " +
			"--config, or leave the machine there with --keep-arc")
	}
	conversation := a.arc(*c, a.Node.Note)
	conversation.Credential, err = a.loggedIn(ctx, *c, "leave Azure Arc")
	if err == nil {
		err = conversation.Leave(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("%w\nrun unbootstrap again when that is fixed, with --config if it is "+
			"another identity that may do it now, or leave the machine in Azure Arc with --keep-arc", err)
	}
	return nil
}
