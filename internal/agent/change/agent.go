// Package change changes a machine: it joins, reconfigures, repairs, rolls back and gives back.
// Each verb makes a transition, whose phases (package transition) are methods of work or of
// leaving. What is no resource - mirrors, Azure, the waits for kubelet - is ordinary code in them.
package change

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Service is the unit that runs the daemon, when it was installed as one.
const Service = "aks-flex-node-agent.service"

// Machine is the machine that the agent changes.
type Machine interface {
	inspect.Reader
	apply.Disk
	access.Changer
	// Touched notes that a writer other than the engine will change something, done that it has.
	Touched(what string) (done func(), err error)
	// Watch calls hint for what happens to files and units, until ctx ends.
	Watch(ctx context.Context, files, units []string, hint func(what string))
	// Close ends the connection to systemd; the next question opens another.
	Close()
}

// Agent changes one machine.
type Agent struct {
	inspect.Env
	Machine Machine
	// Proving is called when the health gate begins, done when it ends; nil is not called.
	Proving func() (done func())
	// Blocked is called now and then with what blocks a drain that goes on; nil is not called.
	Blocked func(why error)
	// Ended is called with how a transition has ended, and how long it took; nil is not called.
	Ended func(kind transition.Kind, result string, took time.Duration)
	// Client makes the HTTP client that artifacts are fetched with, over the configured proxy.
	Client func(proxy func(*http.Request) (*url.URL, error)) *http.Client
	// Provider makes the HTTP client for the resource provider; nil is follow.NewClient.
	Provider func(proxy func(*http.Request) (*url.URL, error)) *http.Client
	Identity follow.Identity // makes the credential of the node's own identity in Azure
	// Given reads the configuration as it is now, for credentials that are not kept; nil when it
	// cannot be read. A nil function reads none.
	Given func() *config.Config
	// Person describes the user who runs the agent.
	Person access.Person

	Bundle sync.Mutex // held while the configuration that a provider has delivered is written
}

// Input is a configuration as it was received.
type Input struct {
	Config   config.Config
	Document []byte // the canonical form of what was read; without it Config stands for itself
	// Origin tells where it came from: "file", or "url" for one that a provider has delivered.
	Origin   string
	Resource *config.Resource // the flexNodeConfig that it is from; nil when it does not say
}

// ProviderClient returns an HTTP client for requests to the provider of a configuration.
func ProviderClient(a *Agent, c config.Config) *http.Client {
	if a.Provider != nil {
		return a.Provider(c.ProxyFunc())
	}
	return follow.NewClient(c.ProxyFunc(), ProviderRoots(a, c))
}

// ProviderRoots returns the CAs for the provider's own listener; nil for those of the system.
func ProviderRoots(a *Agent, c config.Config) *x509.CertPool {
	joined, err := a.Records().Joining()
	if err != nil {
		a.Log.Warn("cannot read the CAs of the provider that this machine trusts", "error", err)
	}
	if joined.ProviderCA == nil || !follow.MannerOf(c).Signs {
		return nil
	}
	return follow.Roots(joined.ProviderCA)
}

// Home holds the machine and all that is remembered of it for one verb, which locks to write.
type Home struct {
	*inspect.Node
	Agent  *Agent
	Engine *apply.Engine
	Store  *saved.Store
	// view shows what the verb changes as the eleven steps.
	view *progress.Steps
	lock *os.File
}

// OpenReadOnly begins a verb that changes nothing yet: no lock, no write.
func OpenReadOnly(ctx context.Context, a *Agent) (*Home, error) {
	journal, err := apply.OpenJournal(a.Machine, saved.StateDir, saved.LedgerFile)
	if err != nil {
		return nil, err
	}
	h := newHome(a, journal)
	return h, h.Open(ctx)
}

// newHome returns a home of which nothing but the ledger was read.
func newHome(a *Agent, journal *apply.Journal) *Home {
	n := inspect.NewNode(&a.Env, journal)
	return &Home{
		Node: n, Agent: a,
		Engine: &apply.Engine{Host: a.Machine, Disk: a.Machine, Journal: journal},
		Store:  saved.NewStore(n.Saved, a.Machine),
		view:   &progress.Steps{Show: a.Emit, Alive: a.Alive, Log: a.Log},
	}
}

// Credentialed reports whether kubelet has a credential of the applied node.
func Credentialed(h *Home) bool {
	return h.Saved.Applied != nil && access.Held(h.Node, h.Saved.Applied.Config)
}

// askAzure returns what asks Azure for a verb.
func askAzure(h *Home) *access.Azure {
	return &access.Azure{
		Node: h.Node, Machine: h.Agent.Machine, Records: h.Saved, Store: h.Store.Writer.Writer,
		Person: h.Agent.Person, Given: h.Agent.Given,
		Proved: func() (*config.Config, inspect.Cluster) {
			if h.Saved.Live == nil {
				return nil, inspect.Cluster{}
			}
			return &h.Saved.Live.Config, h.Saved.At()
		},
	}
}

// NewLocator returns what finds the API server for a verb.
func NewLocator(h *Home) *access.Locator { return &access.Locator{Azure: askAzure(h)} }

// OpenLocked begins a verb that writes: it takes the lock and removes what a killed run half wrote.
func OpenLocked(ctx context.Context, a *Agent, verb string) (*Home, error) {
	l, err := Acquire(a, saved.LockFile, verb)
	if err != nil {
		return nil, err
	}
	h, err := OpenReadOnly(ctx, a)
	if err == nil {
		h.lock = l
		err = a.Machine.Sweep(h.Engine.Journal.Ledger().Keys())
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return h, nil
}

// Close releases the lock.
func (h *Home) Close() {
	if h.lock != nil {
		h.lock.Close()
	}
}

// Acquire takes one of the locks for a command of this process.
func Acquire(a *Agent, name, verb string) (*os.File, error) {
	holder := host.Holder{PID: os.Getpid(), Verb: verb, Since: time.Now()}
	return host.Acquire(a.Path(saved.RunDir), name, holder)
}

// Unopened returns a home of which nothing was read, not even the ledger.
func Unopened(a *Agent) *Home {
	return newHome(a, apply.NewJournal(a.Machine, saved.StateDir, saved.LedgerFile))
}

func inTurn(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
