package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

const rolesTimeout = 30 * time.Minute // bounds the time until role assignments take effect

// arc returns the client of Azure Arc. say reports what is being waited for.
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
	return a.Store.Records().Load(RecordFile, &arc.Record{})
}

// Enrolment is an Arc machine whose identity the cluster should authorise.
type Enrolment struct {
	Principal string    // the object id of its identity
	assigned  time.Time // the time of its newest role assignment
}

// Enrol makes the machine an Arc machine, unless it is one that the cluster at the given address
// authorises or that an owner should authorise. doing reports progress.
func (a *Azure) Enrol(
	ctx context.Context, c config.Config, at transition.Cluster, doing func(text string),
) (e Enrolment, err error) {
	record, err := Record(a.Store.Records())
	if err != nil {
		return e, err
	}
	c = a.withGiven(c)
	conversation := a.arc(c, func(format string, args ...any) { doing(fmt.Sprintf(format, args...)) })
	if !c.Azure.Onboards() && MachineID(ctx, a.Node, c) != "" &&
		(a.admitted(ctx, c, at) || !arc.Assigns(c.Azure)) {
		token, err := JoinToken(ctx, c)
		if !identity.Refused(err) { // else Azure has lost the machine, whatever its agent says
			e.Principal = identity.ClaimsOf(token).ObjectID
			return e, errors.Join(err, conversation.Adopt(ctx, record))
		}
	}
	conversation.Credential, err = a.loggedIn(ctx, c, "register the machine with Azure Arc")
	if err == nil {
		e.Principal, e.assigned, err = conversation.Enrol(ctx, record)
	}
	return e, err
}

// withGiven returns a configuration with the secret of the service principal that enrols the
// machine, from the owner's configuration: it is not stored on the machine.
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

// admitted reports whether the cluster authorises the identity of this Arc machine.
func (a *Azure) admitted(ctx context.Context, c config.Config, at transition.Cluster) bool {
	token, err := Fresh(ctx, c)
	if err != nil {
		return false
	}
	ok, err := Authorised(ctx, a.Node, c, at, token.Value)
	return err == nil && ok
}

// WaitAuthorised waits until the cluster allows the Arc identity to do what kubelet must do. If an
// owner has to assign its roles, it names them. The machine's metadata service caches tokens: if
// one is older than the newest role assignment, that service is restarted, once.
func (a *Azure) WaitAuthorised(
	ctx context.Context, c config.Config, at transition.Cluster, e Enrolment, doing func(string),
) error {
	ctx, cancel := context.WithTimeout(ctx, rolesTimeout)
	defer cancel()
	pauses := wait.Backoff{Base: a.Node.Every(2 * time.Second), Max: 15 * time.Second}
	restarted, told := false, arc.Assigns(c.Azure)
	for began := time.Now(); ; {
		token, err := JoinToken(ctx, c)
		if err != nil {
			return err
		}
		issued := time.Unix(int64(identity.ClaimsOf(token).Issued), 0) // whole seconds
		if !restarted && issued.Before(e.assigned.Truncate(time.Second)) {
			restarted = true
			doing("restarting the Arc agent's metadata service, whose token is older than the role " +
				"assignment")
			if err := a.Machine.RestartUnit(ctx, "himdsd.service"); err != nil {
				return err
			}
			continue
		}
		if ok, err := Authorised(ctx, a.Node, c, at, token); err != nil || ok {
			return err
		}
		if !told {
			told = true
			a.Node.Note("waiting up to %s for an owner to authorise this machine: %s",
				rolesTimeout, lacking(c, e.Principal))
		}
		waited := time.Since(began).Truncate(time.Second)
		doing(fmt.Sprintf("waiting for the role assignments to take effect (%s)", waited))
		if !wait.Sleep(ctx, pauses.Next()) {
			return fmt.Errorf("cannot use the identity of the Arc machine: the cluster did not authorise "+
				"it within %s; %s", waited, lacking(c, e.Principal))
		}
	}
}

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

// Leave undoes the agent's changes in Azure Arc, as the identity of a configuration, which may be
// nil. Changes by others remain.
func (a *Azure) Leave(ctx context.Context, c *config.Config) error {
	record, err := Record(a.Store.Records())
	if err != nil || !record.Owes() {
		return err
	}
	if c == nil {
		return errors.New("cannot leave Azure Arc: no configuration names the identity to use")
	}
	conversation := a.arc(*c, a.Node.Note)
	conversation.Credential, err = a.loggedIn(ctx, *c, "leave Azure Arc")
	if err != nil {
		return err
	}
	return conversation.Leave(ctx, record)
}

// RecordFile is the file with the record of an enrolment with Azure Arc.
const RecordFile = "arc.json"

// Records reads the records of the machine.
type Records interface {
	Load(name string, v any) (bool, error)
}

// Record reads the record of the enrolment with Arc; zero if none.
func Record(r Records) (record arc.Record, err error) {
	_, err = r.Load(RecordFile, &record)
	return record, err
}

// Standing returns the registration according to the Arc agent, compared with the record.
func Standing(ctx context.Context, m Machine, r Records, c config.Config) (health.Arc, error) {
	record, err := Record(r)
	if err != nil {
		return health.Arc{}, err
	}
	s, err := agent(m, c).Status(ctx)
	if err != nil {
		return health.Arc{}, err
	}
	a := health.Arc{Machine: s.MachineID(), Recorded: record.MachineID, Agent: string(s.Agent)}
	switch s.Agent {
	case arc.Connected:
	case arc.Expired:
		a.Refused = true
	default:
		_, err := Fresh(ctx, c)
		a.Refused = identity.Refused(err)
	}
	a.Lost = s.MachineID() == "" || a.Refused || !strings.EqualFold(s.MachineID(), record.MachineID)
	return a, nil
}

// MachineID returns the ARM id of this Arc machine; "" if it is none or is no longer accepted.
func MachineID(ctx context.Context, m Machine, c config.Config) string {
	if c.Azure.AuthMode() != config.AuthArc {
		return ""
	}
	s, err := agent(m, c).Status(ctx)
	if err != nil || s.Agent == arc.Expired {
		return ""
	}
	return s.MachineID()
}

func agent(m Machine, c config.Config) arc.Arc {
	return arc.Arc{
		Config: c.Azure, Machine: m, Options: identity.ARM(c.Azure, c.ProxyFunc()),
		Proxy: c.Proxy.HTTPS, Warn: m.Warn,
	}
}

// PackageDir is the directory in which the Arc agent's package is downloaded and installed.
const PackageDir = config.StateDir + "/packages"

// Package returns a download of the Arc agent's package to PackageDir. doing reports progress.
func (a *Azure) Package(seen host.Facts, doing func(string)) arc.Download {
	return arc.Download{
		Machine: a.Node, Arch: seen.Arch, ID: seen.OSID, Version: seen.OSVersion,
		Dir: PackageDir, Path: a.Node.Path(PackageDir), Doing: doing, Trusted: a.Node.TrustedFile,
		Clear: func(ctx context.Context) error { return a.Store.RemoveTree(ctx, PackageDir) },
		Make: func(ctx context.Context, to state.Resource) error {
			return a.Store.Disk.Set(ctx, state.Change{To: to}, nil)
		},
	}
}

// Ready checks, before any change, that Azure knows the identity of a configuration, that the Arc
// agent is installed or can be, and that the cluster accepts such a node.
func (l *Locator) Ready(ctx context.Context, c config.Config, seen host.Facts) error {
	a := l.Azure
	mode := c.Azure.AuthMode()
	if mode == config.AuthBootstrapToken {
		return nil
	}
	connected := MachineID(ctx, a.Node, c) != ""
	if mode == config.AuthArc && !connected {
		_, err := agent(a.Node, c).Status(ctx)
		if errors.Is(err, arc.ErrNotInstalled) {
			err = a.Package(seen, nil).Check(c)
		}
		if err == nil {
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

func takes(cluster aks.Cluster, c config.Config) error {
	name := c.Azure.TargetCluster.ResourceID
	switch {
	case !cluster.Entra:
		return fmt.Errorf("cannot join %s: it does not accept identities of Entra ID; enable them (az "+
			"aks update --enable-aad), or join with azure.bootstrapToken", name)
	case c.Azure.ShowsToken() && !cluster.AzureRBAC:
		return fmt.Errorf("cannot join %s with azure.kubeletCredential token: Azure's role assignments "+
			"do not authorise there; enable that (az aks update --enable-azure-rbac), or set "+
			"azure.kubeletCredential to certificate", name)
	}
	return nil
}

// onboardable checks that there is a login that may enrol the machine with Arc and authorise it,
// and warns if it cannot undo that. It changes nothing.
func (a *Azure) onboardable(ctx context.Context, c config.Config, connected bool) error {
	record, err := Record(a.Store.Records())
	live, _ := a.Proved()
	enrolled := err == nil && record.MachineID != "" && live != nil
	if enrolled || connected && !c.Azure.Onboards() && !arc.Assigns(c.Azure) {
		return nil // the latter waits until an owner authorises it
	}
	conversation := a.arc(c, nil)
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
		return fmt.Errorf("cannot enrol the machine with Azure Arc: the identity %s lacks "+
			"permissions; nothing was changed. It needs the following, which an owner assigns "+
			"with:\n%s\nA role assignment takes some minutes to have an effect", principal,
			arc.Explain(gaps, principal))
	case len(gaps) > 0:
		a.Node.Warn("the identity %s can enrol the machine with Azure Arc but cannot undo that; for "+
			"unbootstrap it needs the following, which an owner assigns with:\n%s", principal,
			arc.Explain(gaps, principal))
	}
	return nil
}

// Prove checks that a changed credential works before anything relies on it: with one fresh token
// from the issuer, bypassing caches, and one API server request. A forbidden caller is recognised.
func Prove(ctx context.Context, m Machine, c config.Config, at transition.Cluster) error {
	if c.Azure.BootstrapToken != nil {
		return nil
	}
	token, err := identity.Proved(ctx, func() (Token, error) { return Fresh(ctx, c) })
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
			"azure.tenantId and %s", strings.TrimPrefix(string(c.Azure.AuthMode()), "azure."))}
	}
	return err
}

// SameIdentity reports whether two configurations have the same identity and secret, if readable.
func SameIdentity(a, b config.Config) bool {
	one, err1 := identity.Key(a.Azure)
	two, err2 := identity.Key(b.Azure)
	return errors.Join(err1, err2) == nil && one == two && a.Azure.AuthMode() == b.Azure.AuthMode()
}
