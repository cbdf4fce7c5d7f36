package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
)

// home is what one verb works with: the machine under its ledger, and all that the agent remembers
// of it. A verb that writes holds the lock.
type home struct {
	*Agent
	engine *apply.Engine
	saved  *saved.State
	lock   *saved.Lock
}

// openReadOnly begins a verb that only reads: no lock, no write.
func (a *Agent) openReadOnly(ctx context.Context) (*home, error) {
	journal, err := apply.OpenJournal(a.Machine, saved.StateDir, saved.LedgerFile)
	if err != nil {
		return nil, err
	}
	h := a.newHome(journal, nil)
	if !journal.Exists() {
		if err := h.saved.LedgerLost(); err != nil {
			return nil, err
		}
	}
	return h, h.read(ctx)
}

func (a *Agent) newHome(journal *apply.Journal, l *saved.Lock) *home {
	return &home{
		Agent:  a,
		engine: &apply.Engine{Host: a.Machine, Disk: a.Machine, Journal: journal},
		saved:  saved.New(a.Machine, a.Machine.List),
		lock:   l,
	}
}

// openLocked begins a verb that writes. It takes the lock and removes what a killed run has left
// half written.
func (a *Agent) openLocked(ctx context.Context, verb string) (*home, error) {
	l, err := a.acquire(saved.LockFile, verb)
	if err != nil {
		return nil, err
	}
	h, err := a.openReadOnly(ctx)
	if err == nil {
		h.lock = l
		err = a.Machine.Sweep(h.engine.Journal.Ledger().Keys())
	}
	if err != nil {
		l.Release()
		return nil, err
	}
	return h, nil
}

func (h *home) close() {
	if h.lock != nil {
		h.lock.Release()
	}
}

// read fills the saved state from disk.
func (h *home) read(ctx context.Context) error {
	if err := h.saved.Read(ctx); err != nil {
		return err
	}
	for _, c := range h.saved.Secrets {
		h.learn(c.BootstrapToken.Reveal(), c.ClientSecret.Reveal())
	}
	h.adoptProgram()
	return nil
}

// records are the saved records, for what needs nothing else.
func (a *Agent) records() saved.Records {
	return saved.Records{Disk: a.Machine, Dir: saved.StateDir}
}

// acquire takes one of the locks for a command of this process.
func (a *Agent) acquire(name, verb string) (*saved.Lock, error) {
	holder := saved.Holder{PID: os.Getpid(), Verb: verb, Since: now()}
	return saved.Acquire(a.path(saved.RunDir), name, holder)
}

// adoptProgram makes this program the one that kubelet calls for tokens when that one is gone, as
// when a package has replaced an installation by hand: what calls it is then drift.
func (h *home) adoptProgram() {
	was := h.saved.Bindings.Program
	if _, err := os.Stat(was); was == "" || !errors.Is(err, fs.ErrNotExist) || h.trusted() != nil {
		return
	}
	h.saved.Bindings.Program = h.Program
}

// errNoNode tells that a verb needs a node.
var errNoNode = errors.New(
	"this machine is not a node: run `aks-flex-node bootstrap --config FILE` first")
