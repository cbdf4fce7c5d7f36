package change

import (
	"context"
	"os"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

// Home holds the machine under its ledger, and all that the agent remembers of it, for one verb. A
// verb that writes holds the lock.
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
	holder := host.Holder{PID: os.Getpid(), Verb: verb, Since: inspect.Now()}
	return host.Acquire(a.Path(saved.RunDir), name, holder)
}

// Unopened returns a home of which nothing was read, not even the ledger.
func Unopened(a *Agent) *Home {
	return newHome(a, apply.NewJournal(a.Machine, saved.StateDir, saved.LedgerFile))
}

// inTurn carries out steps until one fails.
func inTurn(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
