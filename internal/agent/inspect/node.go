package inspect

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Node is a machine as a check sees it: what is on it, and what the agent remembers of it. It has
// no way to change either.
type Node struct {
	*Env
	Saved  *saved.State
	ledger ledger
}

// ledger is what is remembered of the machine before it became a node, to be read.
type ledger interface {
	Ledger() state.Ledger
	Exists() bool
}

// open reads what the agent remembers of the machine.
func open(ctx context.Context, a *Env) (*Node, error) {
	journal, err := apply.ReadJournal(a.Reader, saved.StateDir, saved.LedgerFile)
	if err != nil {
		return nil, err
	}
	n := NewNode(a, journal)
	if !journal.Exists() {
		if err := n.Saved.LedgerLost(); err != nil {
			return nil, err
		}
	}
	return n, n.Read(ctx)
}

// NewNode returns a node of which nothing but the ledger was read.
func NewNode(a *Env, l ledger) *Node {
	return &Node{Env: a, Saved: saved.New(a.Reader), ledger: l}
}

// Read fills the saved state from disk.
func (n *Node) Read(ctx context.Context) error {
	if err := n.Saved.Read(ctx); err != nil {
		return err
	}
	for _, c := range n.Saved.Secrets {
		n.Conceal(c.BootstrapToken.Reveal(), c.ClientSecret.Reveal())
	}
	adoptProgram(n)
	return nil
}

// view compares the machine with what it is to be.
func (n *Node) view() apply.View {
	return apply.View{Host: n.Reader, Ledger: n.ledger.Ledger()}
}

// Records returns the saved records, for what needs nothing else.
func (a *Env) Records() saved.Records {
	return saved.Records{Files: a.Reader, Dir: saved.StateDir}
}

// adoptProgram makes this program the one that kubelet calls for tokens when that one is gone, as
// when a package has replaced an installation by hand: what calls it is then drift.
func adoptProgram(n *Node) {
	was := n.Saved.Bindings.Program
	if _, err := os.Stat(was); was == "" || !errors.Is(err, fs.ErrNotExist) || Trusted(n) != nil {
		return
	}
	n.Saved.Bindings.Program = n.Program
}

// ErrNoNode reports that a verb needs a node.
var ErrNoNode = errors.New(
	"this machine is not a node: run `aks-flex-node bootstrap --config FILE` first")
