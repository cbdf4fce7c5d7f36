package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// home is what one verb works with: the machine under its ledger, and all that the agent remembers
// of it. A verb that writes holds the lock.
type home struct {
	*Agent
	engine  *apply.Engine
	store   generation.Store
	records records
	lock    *lock
	memory
}

// memory is what the agent remembers of this machine, as it is on disk.
type memory struct {
	// live and applied are nil on a machine that is no node.
	live, applied *generation.Generation
	bindings      bindings
	secrets       secrets
	// transition is the change under way; nil when there is none.
	transition *transition.Transition
	rejected   []Rejection
}

// bindings is what the node was last proved with, and the cluster's identity.
type bindings struct {
	node.Bindings
	// ClusterUID is the uid of the Service default/kubernetes: the cluster stays the same one when
	// its address and CA change.
	ClusterUID string `json:"clusterUID,omitempty"`
	// FormerCA is what CA holds of before the last rotation. The next one drops it.
	FormerCA string `json:"formerCA,omitempty"`
}

// currentCA is the CA without the former one.
func (b bindings) currentCA() string { return without(b.CA, b.FormerCA) }

// formerCA is what is the former CA once another one is proved. One that brings nothing new was
// only told in another order: then nothing counts as former.
func (b bindings) formerCA(proved string) string {
	switch {
	case proved == b.CA:
		return b.FormerCA
	case without(proved, b.CA) == "":
		return ""
	}
	return b.currentCA()
}

// secrets are the credentials of generations, by id. They are in one file, apart from everything
// else.
type secrets map[string]config.Credentials

// The files below StateDir, beside the ledgers and the generations.
const (
	ledgerFile     = "ledger.json"
	nodeLedger     = "node-ledger.json"
	bindingsFile   = "bindings.json"
	secretsFile    = "credentials.json"
	transitionFile = "transition.json"
	rejectedFile   = "rejected.json"
	arcFile        = "arc.json"
	// For people and scripts, written from the above.
	currentFile  = "current-config.json"
	appliedFile  = "applied-config.json"
	previousFile = "previous-config.json"
	joinFile     = "join-state.json"
)

// openReadOnly begins a verb that only reads: no lock, no write.
func (a *Agent) openReadOnly(ctx context.Context) (*home, error) {
	journal, err := apply.OpenJournal(a.Machine, StateDir, ledgerFile)
	if err != nil {
		return nil, err
	}
	h := a.newHome(journal, nil)
	if err := h.ledgerLost(); err != nil {
		return nil, err
	}
	return h, h.read(ctx)
}

func (a *Agent) newHome(journal *apply.Journal, l *lock) *home {
	return &home{
		Agent:   a,
		engine:  &apply.Engine{Host: a.Machine, Disk: a.Machine, Journal: journal},
		store:   generation.Store{Disk: a.Machine, Dir: StateDir, List: a.Machine.List},
		records: records{host: a.Machine, dir: StateDir},
		lock:    l,
		memory:  memory{secrets: secrets{}},
	}
}

// openLocked begins a verb that writes. It takes the lock and removes what a killed run has left
// half written.
func (a *Agent) openLocked(ctx context.Context, verb string) (*home, error) {
	l, err := a.acquire(lockFile, verb)
	if err != nil {
		return nil, err
	}
	h, err := a.openReadOnly(ctx)
	if err == nil {
		h.lock = l
		err = a.Machine.Sweep(h.engine.Journal.Ledger().Keys())
	}
	if err != nil {
		l.release()
		return nil, err
	}
	return h, nil
}

func (h *home) close() {
	if h.lock != nil {
		h.lock.release()
	}
}

// ErrLedgerLost tells that the machine is a node but that nothing says how it was before.
var ErrLedgerLost = errors.New("the ledger is gone, so what the machine was before is not known")

// ledgerLost tells a machine without a ledger from a machine that has lost it.
func (h *home) ledgerLost() error {
	var join JoinState
	if h.engine.Journal.Exists() {
		return nil
	}
	if ok, err := h.records.load(joinFile, &join); err != nil || !ok {
		return err
	}
	return fmt.Errorf("cannot read %s: %w", path.Join(StateDir, ledgerFile), ErrLedgerLost)
}

// read fills the memory from disk.
func (h *home) read(ctx context.Context) error {
	h.memory = memory{secrets: secrets{}}
	var err error
	if h.live, err = h.store.Read(ctx, generation.Live); err != nil {
		return err
	}
	if h.applied, err = h.readApplied(ctx); err != nil {
		return err
	}
	if _, err := h.records.load(bindingsFile, &h.bindings); err != nil {
		return err
	}
	h.adoptProgram()
	if err := h.readSecrets(); err != nil {
		return err
	}
	if _, err := h.records.load(rejectedFile, &h.rejected); err != nil {
		return err
	}
	var t transition.Transition
	under, err := h.records.load(transitionFile, &t)
	if under {
		h.transition = &t
	}
	return err
}

// adoptProgram makes this program the one that kubelet calls for tokens when that one is gone, as
// when a package has replaced an installation by hand: what calls it is then drift.
func (h *home) adoptProgram() {
	was := h.bindings.Program
	if _, err := os.Stat(was); was == "" || !errors.Is(err, fs.ErrNotExist) || h.trusted() != nil {
		return
	}
	h.bindings.Program = h.Program
}

// readApplied reads the generation that was proved healthy last; mostly it is the one that is live.
func (h *home) readApplied(ctx context.Context) (*generation.Generation, error) {
	id, err := h.store.Target(ctx, generation.Applied)
	if err != nil || id == "" {
		return nil, err
	}
	if h.live != nil && h.live.ID == id {
		return h.live, nil
	}
	g, err := h.store.Load(id)
	return &g, err
}

func (h *home) readSecrets() error {
	var revealed map[string]revealedSecrets
	if _, err := h.records.load(secretsFile, &revealed); err != nil {
		return err
	}
	for id, s := range revealed {
		h.secrets[id] = s.hide()
		h.learn(s.BootstrapToken, s.ClientSecret)
	}
	return nil
}

// revealedSecrets is how credentials are in their file.
type revealedSecrets struct {
	BootstrapToken string `json:"bootstrapToken,omitempty"`
	ClientSecret   string `json:"clientSecret,omitempty"`
	// AdminKubeconfig is a whole file.
	AdminKubeconfig string `json:"adminKubeconfig,omitempty"`
}

func (r revealedSecrets) hide() config.Credentials {
	return config.Credentials{
		BootstrapToken: config.Secret(r.BootstrapToken), ClientSecret: config.Secret(r.ClientSecret),
		AdminKubeconfig: config.Secret(r.AdminKubeconfig),
	}
}

// saveSecrets writes the credentials of all generations, or removes the file when there are none.
func (h *home) saveSecrets(ctx context.Context) error {
	revealed := make(map[string]revealedSecrets)
	for id, s := range h.secrets {
		if s != (config.Credentials{}) {
			revealed[id] = revealedSecrets{
				s.BootstrapToken.Reveal(), s.ClientSecret.Reveal(), s.AdminKubeconfig.Reveal(),
			}
		}
	}
	if len(revealed) == 0 {
		return h.records.remove(ctx, secretsFile)
	}
	return h.records.save(ctx, secretsFile, revealed)
}

// configOf is a generation's configuration with its credentials.
func (m *memory) configOf(g *generation.Generation) config.Config {
	return g.Config.WithCredentials(m.secrets[g.ID])
}

// joined tells whether the machine has been a Ready Node.
func (m *memory) joined() bool { return m.bindings.Joined }

// bind is a generation's resources with the values that they have on this machine now.
func (m *memory) bound(b node.Bindings, g *generation.Generation) node.Bindings {
	b.BootstrapToken = m.secrets[g.ID].BootstrapToken
	b.AdminKubeconfig = m.secrets[g.ID].AdminKubeconfig
	return b
}

// errNoNode tells that a verb needs a node.
var errNoNode = errors.New(
	"this machine is not a node: run `aks-flex-node bootstrap --config FILE` first")
