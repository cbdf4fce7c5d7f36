// Package agent holds the verbs: bootstrap, plan, drift, repair, status, unbootstrap, token, and
// what the daemon does with them. A verb that changes something makes a transition and carries it
// out: package transition has the order of its phases, and each phase is one function (work.phases,
// leaving.run). What is not a resource of the machine or of the Node object - mirrors, Azure, the
// waits for kubelet - is ordinary code in the phases.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Service is the unit that runs the daemon, when it was installed as one.
const Service = "aks-flex-node-agent.service"

// Machine is the host with what only the agent asks of it.
type Machine interface {
	apply.Disk
	Facts(ctx context.Context, q host.Query) (host.Facts, error)
	// Examine finds out what is asked only when something may be wrong.
	Examine(modules []string, dir, resolvConf string) host.Examination
	// Upkeep finds out what wears out or changes under a machine that runs.
	Upkeep(ctx context.Context, dirs []string) host.Upkeep
	// CNIConfigs lists the network configurations in a directory.
	CNIConfigs(dir string) ([]string, error)
	// UnitStatus tells how a unit runs: its process, since when, and how often it was restarted.
	UnitStatus(ctx context.Context, name string) (host.UnitStatus, error)
	// Journal returns the last lines that a unit has logged.
	Journal(ctx context.Context, unit string, lines int) []string
	arc.Machine // runs programs, and restarts units that are not the node's
	// RunAs runs a program as a user, for limit at longest.
	RunAs(ctx context.Context, limit time.Duration, u host.User, argv ...string) ([]byte, error)
	// RunOnTerminal runs a program that talks to the person at the terminal; u nil is root.
	RunOnTerminal(ctx context.Context, limit time.Duration, u *host.User, argv ...string) error
	// OpeningCommands are the commands that make an opening in a firewall, for people to run.
	OpeningCommands(o state.Opening) []string
	// DialFromPod connects to a TCP port from the network of a pod.
	DialFromPod(ctx context.Context, to netip.AddrPort) error
	// List names the entries of a directory.
	List(dir string) ([]string, error)
	// Touched is told what is about to be changed by somebody else than the engine, and done when
	// that is over.
	Touched(what string) (done func(), err error)
	// Watch tells of what happens to files and units, until ctx ends.
	Watch(ctx context.Context, files, units []string, hint func(what string))
	// Close ends the connection to systemd; the next question opens another.
	Close()
}

// Agent runs verbs on one machine.
type Agent struct {
	Machine Machine
	// Root is put before every path; "" on a real machine.
	Root string
	Log  *slog.Logger
	// Show receives progress; nil shows nothing.
	Show func(progress.Event)
	// Beat is told that work goes on; nil tells nobody.
	Beat func()
	// Proving is called when the health gate begins, which a new configuration does not
	// interrupt at once, until done is called; nil is not called.
	Proving func() (done func())
	// Client makes the HTTP client that artifacts are fetched with, over the configured proxy.
	Client func(proxy func(*http.Request) (*url.URL, error)) *http.Client
	// Provider makes the HTTP client for requests to the resource provider; nil is follow.NewClient.
	Provider func(proxy func(*http.Request) (*url.URL, error)) *http.Client
	// Identity makes the credential of the node's own identity in Azure; nil is identity.Node.
	Identity func(c config.Config) (identity.Credential, error)
	// Dial opens connections to the API server; nil is the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// InService tells that this process is the daemon's own service, which must not stop itself.
	InService bool
	// Given reads the configuration as it is now, for credentials that are not kept; nil when it
	// cannot be read. A nil function reads none.
	Given func() *config.Config
	// Learn is told the secrets of each configuration, so that no log shows them; nil tells nobody.
	Learn func(secrets ...string)
	// Terminal tells that there is a person to be asked.
	Terminal bool
	// Invoker is who has called sudo at the terminal, whose login of the Azure CLI is used; nil for
	// root itself.
	Invoker *host.User
	// Program is the path of aks-flex-node, which kubelet calls for tokens; Version is its own.
	Program, Version string
	// Trusted is an error when somebody other than root can change a program; nil is
	// config.Trusted.
	Trusted func(program string) error
	// Poll is the first pause of a wait for kubelet or Azure; 0 is that of each wait.
	Poll time.Duration
	// Patience is how long doctor waits for one server; 0 is its default.
	Patience time.Duration
	// Settling is how long kubelet must have been one and the same process before a change is
	// committed; 0 is defaultSettling.
	Settling time.Duration
	// Healthz asks kubelet's health endpoint; nil asks the one on this machine.
	Healthz func(context.Context) error
	// Runtime asks the container runtime whether it serves kubelet (kube.Runtime); nil asks the one
	// on this machine.
	Runtime func(context.Context) error

	// Live is told what the service does; nil for any other verb.
	Live *Live

	// unanswered is how many questions in a row the container runtime has not answered.
	unanswered int
	// shown is what a slow Arc agent has told the last check.
	shown shownArc
	// version is the last one of the API server that works with kubelet's.
	version serverVersion
	// bundle is held while the configuration that a provider has delivered is written.
	bundle sync.Mutex
	// claimed is this process' claim to be the machine's one daemon.
	claimed *saved.Lock
}

// Input is a configuration as it was received.
type Input struct {
	Config config.Config
	// Document is the canonical form of what the configuration was read from (config.Canonical);
	// without it the configuration stands for itself.
	Document []byte
	// Origin tells where it came from: "file", or "url" for one that a provider has delivered.
	Origin string
	// Resource is the flexNodeConfig that it is from; nil when it does not say.
	Resource *config.Resource
}

func (a *Agent) show(e progress.Event) {
	a.beat()
	a.Live.progressed(e)
	if a.Show != nil {
		a.Show(e)
	}
}

func (a *Agent) beat() {
	if a.Beat != nil {
		a.Beat()
	}
}

// learn tells of secrets that no log may show.
func (a *Agent) learn(secrets ...string) {
	if a.Learn != nil {
		a.Learn(secrets...)
	}
}

// warn tells of what somebody should know.
func (a *Agent) warn(format string, args ...any) {
	a.show(progress.Event{Kind: progress.Warning, Text: fmt.Sprintf(format, args...)})
}

// note tells of what is worth knowing.
func (a *Agent) note(format string, args ...any) {
	a.show(progress.Event{Kind: progress.Note, Text: fmt.Sprintf(format, args...)})
}

// providerClient returns an HTTP client for requests to the provider of a configuration.
func (a *Agent) providerClient(c config.Config) *http.Client {
	if a.Provider != nil {
		return a.Provider(c.ProxyFunc())
	}
	return follow.NewClient(c.ProxyFunc())
}

// nodeCredential returns the credential of the node's own identity in Azure.
func (a *Agent) nodeCredential(c config.Config) (identity.Credential, error) {
	if a.Identity != nil {
		return a.Identity(c)
	}
	return identity.Node(c.Azure, c.ProxyFunc())
}

func (a *Agent) path(p string) string { return path.Join("/", a.Root, p) }

// every is the pause of a wait.
func (a *Agent) every(usual time.Duration) time.Duration {
	if a.Poll != 0 {
		return a.Poll
	}
	return usual
}
