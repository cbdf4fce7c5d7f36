package access

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Changer changes a machine to access Azure.
type Changer interface {
	RestartUnit(ctx context.Context, name string) error
	// RunAs runs a program as a user, for at most limit.
	RunAs(ctx context.Context, limit time.Duration, u host.User, argv ...string) ([]byte, error)
	// RunOnTerminal runs a program that talks to the user at the terminal; a nil u is root.
	RunOnTerminal(ctx context.Context, limit time.Duration, u *host.User, argv ...string) error
}

// Person describes the user who runs the agent.
type Person struct {
	Terminal bool       // the user can be asked
	Invoker  *host.User // called sudo, and has the Azure CLI login to use; nil for root itself
}

// Azure is a machine's access to Azure.
type Azure struct {
	Node interface {
		Machine
		Note(format string, args ...any)
		Every(usual time.Duration) time.Duration // the pause of a wait, usually the given one
		TrustedFile(file string) error
	}
	Machine Changer
	Store   apply.Writer
	Person  Person
	// Proved returns the configuration of the running node, nil for none, and its proved API server.
	Proved func() (*config.Config, transition.Cluster)
	// Given reads the owner's configuration, for credentials that are not stored; nil if unreadable.
	Given func() *config.Config // may be nil
}

// login returns the login of this machine's operator for Resource Manager: that of the user who
// called sudo at the terminal, else of the configured user. User and Terminal may be nil.
func (a *Azure) login(c config.Azure) identity.Login {
	l := identity.Login{Note: a.Node.Note}
	as := func() (*host.User, error) { return a.Person.Invoker, nil }
	if a.Person.Invoker == nil && !a.Person.Terminal && c.CLIUser != "" {
		l.Name = c.CLIUser
		as = func() (*host.User, error) { return host.UserNamed(c.CLIUser) }
	}
	if a.Person.Invoker != nil || l.Name != "" {
		l.User = func(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error) {
			u, err := as()
			if err != nil {
				return nil, fmt.Errorf("cannot use azure.cliUser: %w", err)
			}
			return a.Machine.RunAs(ctx, limit, *u, argv...)
		}
	}
	if a.Person.Terminal {
		l.Terminal = func(ctx context.Context, limit time.Duration, argv ...string) error {
			return a.Machine.RunOnTerminal(ctx, limit, a.Person.Invoker, argv...)
		}
	}
	return l
}

// loggedIn returns the operator's credential. If none is valid, the error names doing.
func (a *Azure) loggedIn(
	ctx context.Context, c config.Config, doing string,
) (azcore.TokenCredential, error) {
	login := a.login(c.Azure)
	if err := login.Ensure(ctx, c.Azure, c.ProxyFunc(), doing); err != nil {
		return nil, err
	}
	return login.Manager(c.Azure, c.ProxyFunc())
}

// managers returns the credentials that may ask Azure about the cluster, in the order to try them:
// an Arc machine that was not onboarded by a service principal tries its own first.
func (a *Azure) managers(ctx context.Context, c config.Config) ([]azcore.TokenCredential, error) {
	other, err := a.login(c.Azure).Manager(c.Azure, c.ProxyFunc())
	if err != nil {
		return nil, err
	}
	if c.Azure.Onboards() || MachineID(ctx, a.Node, c) == "" {
		return []azcore.TokenCredential{other}, nil
	}
	own, err := identity.Kubelet(c.Azure, c.ProxyFunc())
	return []azcore.TokenCredential{own, other}, err
}

// ask asks Azure with each credential in turn, and returns the first answer.
func ask[T any](
	ctx context.Context, a *Azure, c config.Config,
	question func(aks.Client, context.Context) (T, error),
) (none T, err error) {
	credentials, err := a.managers(ctx, c)
	if err != nil {
		return none, err
	}
	var errs []error
	for _, credential := range credentials {
		answer, err := question(aks.Client{
			Target: c.Azure.TargetCluster, Credential: credential,
			Options: identity.ARM(c.Azure, c.ProxyFunc()),
		}, ctx)
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	return none, errors.Join(errs...)
}

// AdminKubeconfig returns the administrator's kubeconfig that Azure gives to this identity.
func (a *Azure) AdminKubeconfig(ctx context.Context, c config.Config) (config.Secret, error) {
	return ask(ctx, a, c, aks.Client.AdminKubeconfig)
}

// Locator finds the API server. It asks Azure at most once in a run.
type Locator struct {
	Azure *Azure
	Asked *aks.Cluster // Azure's answer; nil if it was not asked
	Again bool         // asks Azure even if there is a proved address, which no longer works
}

// Locate returns the configured address, else the proved one, else Azure's.
func (l *Locator) Locate(ctx context.Context, c config.Config) (transition.Cluster, error) {
	ca, _ := base64.StdEncoding.DecodeString(c.Node.Kubelet.CACertData) // it was checked
	given := transition.Cluster{Server: c.Node.Kubelet.ServerURL, CA: string(ca)}
	if given.Server != "" && given.CA != "" {
		return given, nil
	}
	found, proved := l.Proved(c)
	if !proved || l.Again {
		said, err := l.Ask(ctx, c)
		if err != nil {
			return given, err
		}
		found = transition.Cluster{Server: said.Server, CA: said.CA}
	}
	return transition.Cluster{
		Server: cmp.Or(given.Server, found.Server), CA: cmp.Or(given.CA, found.CA),
	}, nil
}

// Proved returns the API server with which this machine last became a node of the same cluster.
func (l *Locator) Proved(c config.Config) (transition.Cluster, bool) {
	live, at := l.Azure.Proved()
	if live == nil || at.Server == "" || at.CA == "" {
		return transition.Cluster{}, false
	}
	was, is := live.Azure.TargetCluster.ResourceID, c.Azure.TargetCluster.ResourceID
	return at, strings.EqualFold(was, is)
}

// Ask returns Azure's data about the cluster.
func (l *Locator) Ask(ctx context.Context, c config.Config) (*aks.Cluster, error) {
	if l.Asked == nil {
		said, err := ask(ctx, l.Azure, c, aks.Client.Cluster)
		if err != nil {
			return nil, err
		}
		l.Asked = &said
	}
	return l.Asked, nil
}
