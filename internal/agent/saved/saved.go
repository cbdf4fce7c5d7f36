// Package saved is the state directory of the agent as one typed value. A State is read from disk
// and writes nothing; a method of a Store, whose process holds the lock, makes a durable change.
package saved

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"

	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// The directories of the agent, the locks in RunDir (only one command works and one daemon watches
// at a time), and the files in StateDir, beside the generations.
const (
	StateDir       = config.StateDir
	RunDir         = config.RunDir
	LockFile       = "lock"
	DaemonLockFile = "daemon.lock"
	LedgerFile     = "ledger.json"
	NodeLedgerFile = "node-ledger.json"
	BindingsFile   = "bindings.json"
	SecretsFile    = "credentials.json"
	TransitionFile = "transition.json"
	RejectedFile   = "rejected.json"
	HistoryFile    = "history.json"
	SourceFile     = "source.json"
)

// State holds the agent's records of this machine. It is read-only.
type State struct {
	Records
	Generations generation.Reader
	// Live is the generation that the machine runs, and Applied the one last proved healthy. Both are
	// nil on a machine that is not a node.
	Live, Applied *generation.Generation
	Bindings      Bindings
	Secrets       Secrets
	Transition    *transition.Transition // the change under way; nil if none
	Rejected      history.Rejections
}

// New returns the empty state of a machine.
func New(files generation.Files) *State {
	return &State{
		Records:     NewRecords(files),
		Generations: generation.Reader{Files: files, Dir: StateDir},
		Secrets:     Secrets{},
	}
}

// Former returns the previous generation, for a rollback by hand; nil for none, or a damaged one.
func (s *State) Former(ctx context.Context) (*generation.Generation, error) {
	g, err := s.Generations.Read(ctx, generation.Previous)
	if errors.Is(err, generation.ErrDamaged) {
		return nil, nil
	}
	return g, err
}

// Store writes the state. Its process must hold the lock.
type Store struct {
	*State
	Writer
	Generations generation.Store
}

// NewStore returns a Store for the state of a machine.
func NewStore(s *State, disk apply.Disk) *Store {
	return &Store{
		State: s, Writer: NewWriter(disk),
		Generations: generation.Store{Reader: s.Generations, Disk: disk},
	}
}

// Read fills the state from disk. It does not decode the live generation again.
func (s *State) Read(ctx context.Context) error {
	s.Generations.Known = s.Live
	*s = State{Records: s.Records, Generations: s.Generations, Secrets: Secrets{}}
	var err error
	if s.Live, err = s.Generations.Read(ctx, generation.Live); err != nil {
		return err
	}
	applied, err := s.Generations.Target(ctx, generation.Applied)
	switch {
	case err == nil && s.Live != nil && s.Live.ID == applied: // it takes long to decode
		s.Applied = s.Live
	case err == nil:
		s.Applied, err = s.Generations.Read(ctx, generation.Applied)
	}
	if err != nil {
		return err
	}
	for name, v := range map[string]any{
		SecretsFile: &s.Secrets, BindingsFile: &s.Bindings, RejectedFile: &s.Rejected,
		TransitionFile: &s.Transition,
	} {
		if _, err := s.Load(name, v); err != nil {
			return err
		}
	}
	return nil
}

// AppliedID returns the id of the applied generation; "" if none.
func (s *State) AppliedID() string {
	if s.Applied == nil {
		return ""
	}
	return s.Applied.ID
}

// Joined reports whether the machine has been a Ready Node.
func (s *State) Joined() bool { return s.Bindings.Joined }

// At returns the proved API server.
func (s *State) At() transition.Cluster {
	return transition.Cluster{Server: s.Bindings.Server, CA: s.Bindings.CA}
}

// ConfigOf returns a generation's configuration with its credentials.
func (s *State) ConfigOf(g *generation.Generation) config.Config {
	return g.Config.WithCredentials(s.Secrets[g.ID])
}

// Bound adds the secrets of a generation to its bindings.
func (s *State) Bound(b node.Bindings, g *generation.Generation) node.Bindings {
	b.BootstrapToken = s.Secrets[g.ID].BootstrapToken
	b.AdminKubeconfig = s.Secrets[g.ID].AdminKubeconfig
	return b
}

// SaveTransition stores the record of a transition.
func (s *Store) SaveTransition(ctx context.Context, t transition.Transition) error {
	s.Transition = &t
	return s.Save(ctx, TransitionFile, t)
}

// ClearTransition removes the record of a transition, and the secrets of generations not reached.
func (s *Store) ClearTransition(ctx context.Context) error {
	s.Transition = nil
	if err := s.Remove(ctx, TransitionFile); err != nil {
		return err
	}
	known := len(s.Secrets)
	maps.DeleteFunc(s.Secrets, func(id string, _ config.Credentials) bool {
		live := s.Live != nil && s.Live.ID == id
		return !live && id != s.AppliedID() && id != s.Bindings.Answered
	})
	if len(s.Secrets) == known {
		return nil
	}
	return s.SaveSecrets(ctx)
}

// ErrLedgerLost reports that the machine is a node whose former state is unknown.
var ErrLedgerLost = errors.New("the ledger is missing, so the previous state of the machine is " +
	"unknown")

// LedgerLost returns an error if the machine must have had a ledger, which is lost.
func (s *State) LedgerLost() error {
	text, err := s.Records.Read(JoinFile) // even a damaged one
	if err != nil || text == nil {
		return err
	}
	return fmt.Errorf("cannot read %s: %w", path.Join(s.Dir, LedgerFile), ErrLedgerLost)
}

// ReadHistory reads the history.
func (s *State) ReadHistory() (history.List, error) {
	var list history.List
	_, err := s.Load(HistoryFile, &list)
	return list, err
}

// KeepRejection stores a rejection.
func (s *Store) KeepRejection(ctx context.Context, r history.Rejection) error {
	s.Rejected = s.Rejected.With(r)
	return s.Save(ctx, RejectedFile, s.Rejected)
}

// Want records the wanted document: rejections of others are past.
func (s *Store) Want(ctx context.Context, received string) error {
	if !s.Rejected.Outdated(received) {
		return nil
	}
	s.Rejected.Want(received)
	return s.Save(ctx, RejectedFile, s.Rejected)
}

// Forgive removes the rejection of a document.
func (s *Store) Forgive(ctx context.Context, received string) error {
	rest := s.Rejected.Without(received)
	if len(rest) == len(s.Rejected) {
		return nil
	}
	s.Rejected = rest
	return s.Save(ctx, RejectedFile, rest)
}

// Bindings holds the last proved bindings of the node, and the cluster's identity.
type Bindings struct {
	node.Bindings
	// ClusterUID is the uid of the Service default/kubernetes, which outlasts address and CA.
	ClusterUID string `json:"clusterUID,omitempty"`
	// FormerCA is the part of CA from before the last rotation. The next rotation drops it.
	FormerCA string `json:"formerCA,omitempty"`
	// Answered is the generation in whose manner the provider last answered, if not the applied one.
	Answered string `json:"answered,omitempty"`
}

// SaveBindings stores the bindings.
func (s *Store) SaveBindings(ctx context.Context) error {
	return s.Save(ctx, BindingsFile, s.Bindings)
}

// CurrentCA returns the CA without the former one.
func (b Bindings) CurrentCA() string { return kube.Without(b.CA, b.FormerCA) }

// NextFormerCA returns the former CA after another is proved; "" if they differ only in order.
func (b Bindings) NextFormerCA(proved string) string {
	switch {
	case proved == b.CA:
		return b.FormerCA
	case kube.Without(proved, b.CA) == "":
		return ""
	}
	return b.CurrentCA()
}

// Secrets holds the credentials of generations, by id, in a file apart from everything else.
type Secrets map[string]config.Credentials

// SaveSecrets stores the credentials of all generations, or removes the file if there are none.
func (s *Store) SaveSecrets(ctx context.Context) error {
	list := make(map[string]json.RawMessage)
	for id, c := range s.Secrets {
		if c != (config.Credentials{}) {
			list[id] = c.Reveal()
		}
	}
	if len(list) == 0 {
		return s.Remove(ctx, SecretsFile)
	}
	return s.Save(ctx, SecretsFile, list)
}
