// Package change changes a machine: it joins, reconfigures, repairs, rolls back and gives back.
// Each verb makes a transition, whose phases (package transition) are methods of work or of
// leaving. Work on no resource - mirrors, Azure, the waits for kubelet - is ordinary code in them.
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

// Service is the unit that runs the daemon, if installed.
const Service = "aks-flex-node-agent.service"

// Machine is the machine that the agent changes.
type Machine interface {
	inspect.Reader
	apply.Disk
	access.Changer
	// Touched is called before a change by a writer other than the engine, done after it.
	Touched(what string) (done func(), err error)
	// Watch calls hint for changes of files and units, until ctx ends.
	Watch(ctx context.Context, files, units []string, hint func(what string))
	Close() // ends the connection to systemd; the next request opens a new one
}

// Agent changes one machine.
type Agent struct {
	inspect.Env
	Machine Machine
	// Proving is called when the health gate begins, done when it ends; may be nil.
	Proving func() (done func())
	// Waits is called now and then during a drain, with the reason why it is blocked, and during
	// downloads, with nil; may be nil.
	Waits func(why error)
	// Ended is called with the result of a transition and its duration; may be nil.
	Ended func(kind transition.Kind, result string, took time.Duration)
	// Client returns the HTTP client for artifacts, over the configured proxy.
	Client func(proxy func(*http.Request) (*url.URL, error)) *http.Client
	// Provider returns the HTTP client for the resource provider; nil is follow.NewClient.
	Provider func(proxy func(*http.Request) (*url.URL, error)) *http.Client
	Identity follow.Identity // returns the credential of the node's own Azure identity
	// Given reads the owner's configuration, for credentials that are not stored; nil if it cannot be
	// read. May be nil.
	Given  func() *config.Config
	Person access.Person // describes the user who runs the agent

	Bundle sync.Mutex // held while the delivered configuration is written
}

// Input is a received configuration.
type Input struct {
	Config   config.Config
	Document []byte           // canonical form of the input; if nil, that of Config
	Origin   string           // "file", or "url" for a configuration delivered by a provider
	Resource *config.Resource // its flexNodeConfig; nil if it names none
}

// ProviderClient returns an HTTP client for the provider of a configuration.
func ProviderClient(a *Agent, c config.Config) *http.Client {
	if a.Provider != nil {
		return a.Provider(c.ProxyFunc())
	}
	return follow.NewClient(c.ProxyFunc(), ProviderRoots(a, c))
}

// ProviderRoots returns the CAs for the provider's own listener; nil for the system's.
func ProviderRoots(a *Agent, c config.Config) *x509.CertPool {
	joined, err := a.Records().Joining()
	inspect.LogError(a.Log, "cannot read the CAs of the provider that this machine trusts", err)
	if joined.ProviderCA == nil || !follow.MannerOf(c).Signs {
		return nil
	}
	return follow.Roots(joined.ProviderCA)
}

// Home holds the machine and its records for one verb, which must lock to write.
type Home struct {
	*inspect.Node
	Agent  *Agent
	Engine *apply.Engine
	Store  *saved.Store
	// view shows the verb's changes as the eleven steps.
	view *progress.Steps
	lock *os.File
}

// OpenReadOnly opens the records for a verb that changes nothing yet: no lock, no write.
func OpenReadOnly(ctx context.Context, a *Agent) (*Home, error) {
	h := Unopened(a)
	return h, Reopen(ctx, h)
}

// Reopen reads the records again. It does not decode the unchanged ledger and generation.
func Reopen(ctx context.Context, h *Home) error {
	if err := h.Engine.Journal.Read(h.Agent.Machine); err != nil {
		return err
	}
	return h.Open(ctx)
}

// Unopened returns a home of which nothing was read, not even the ledger.
func Unopened(a *Agent) *Home {
	journal := apply.NewJournal(a.Machine, saved.StateDir, saved.LedgerFile)
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

func askAzure(h *Home) *access.Azure {
	return &access.Azure{
		Node: h.Node, Machine: h.Agent.Machine, Store: h.Store.Writer.Writer,
		Person: h.Agent.Person, Given: h.Agent.Given,
		Proved: func() (*config.Config, inspect.Cluster) {
			if h.Saved.Live == nil {
				return nil, inspect.Cluster{}
			}
			return &h.Saved.Live.Config, h.Saved.At()
		},
	}
}

// NewLocator returns a verb's Locator of the API server.
func NewLocator(h *Home) *access.Locator { return &access.Locator{Azure: askAzure(h)} }

// OpenLocked opens the records for a verb that writes: it takes the lock and removes leftovers.
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
func (h *Home) Close() { h.lock.Close() }

// Acquire takes one of the locks for a command of this process.
func Acquire(a *Agent, name, verb string) (*os.File, error) {
	holder := host.Holder{PID: os.Getpid(), Verb: verb, Since: time.Now()}
	if a.InService { // it must not be ended by its pid
		holder.Verb = "agent"
	}
	return host.Acquire(a.Path(saved.RunDir), name, holder)
}

func inTurn(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
