// Package inspect gathers evidence about the machine, its Node object, its API server and its
// records. It uses a Reader, which has no Set, and a saved.State, which cannot be written: a check
// changes nothing. Package health derives conditions from the evidence.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Reader is the read-only part of a machine (host.Host).
type Reader interface {
	// Observe returns the resource at key; state.Unknown if it cannot be determined now.
	Observe(ctx context.Context, key state.Key) (state.Resource, error)
	ReadFile(path string) ([]byte, error)
	Open(path string) (io.ReadCloser, error)
	List(dir string) ([]string, error)
	Rivals() []string // the units of other container runtimes and kubelets
	Facts(ctx context.Context, q host.Query) (host.Facts, error)
	Examine(modules []string) host.Examination
	Upkeep(ctx context.Context) host.Upkeep
	CNIConfigs(dir string) ([]string, error)
	UnitStatus(ctx context.Context, name string) (host.UnitStatus, error)
	Journal(ctx context.Context, unit string, lines int) []string
	OpeningCommands(o state.Opening) []string // make it in a firewall, for people to run
	DialFromPod(ctx context.Context, to netip.AddrPort) error
	// Run runs a program for at most limit; secret, if not nil, is passed in a file that only root can
	// read, whose path is the last argument.
	Run(ctx context.Context, limit time.Duration, secret []byte, argv ...string) ([]byte, error)
}

// Env is the environment of an agent's process that inspects a machine.
type Env struct {
	Reader Reader
	Root   string // the prefix of every path; "" on a real machine
	Log    *slog.Logger
	Show   func(progress.Event) // receives progress; may be nil
	Beat   func()               // called during the work; may be nil
	// Learn receives each configuration's secrets, to keep them out of logs; may be nil.
	Learn func(secrets ...string)
	// Dial opens connections to the API server; nil uses the network.
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	InService bool // this process is the daemon's own service, which must not stop itself
	// Program is the path of aks-flex-node, which kubelet runs for tokens; Version is its own version.
	Program, Version string
	// Trusted returns an error if a user other than root can change a program; nil is config.Trusted.
	Trusted func(program string) error
	// Today returns the date for judging the end of support of versions; nil disables that.
	Today    func() time.Time
	Poll     time.Duration // first pause of a wait for kubelet or Azure; 0 is each wait's default
	Patience time.Duration // bounds doctor's wait for one server; 0 is its default
	// Settling is the min time of kubelet as one process before a commit; 0 is defaultSettling.
	Settling time.Duration
	// Healthz requests kubelet's health endpoint; nil uses this machine's.
	Healthz func(context.Context) error
	// Runtime checks whether the runtime serves kubelet (kube.Runtime); nil uses this machine's.
	Runtime func(context.Context) error

	unanswered int      // consecutive requests that the container runtime has not answered
	shown      shownArc // the last answer of a slow Arc agent
}

// Emit shows progress, which also counts as a sign of life.
func (a *Env) Emit(e progress.Event) {
	a.Alive()
	if a.Show != nil {
		a.Show(e)
	}
}

// Alive records that work goes on.
func (a *Env) Alive() {
	if a.Beat != nil {
		a.Beat()
	}
}

// Conceal registers secrets that logs must not show.
func (a *Env) Conceal(secrets ...string) {
	if a.Learn != nil {
		a.Learn(secrets...)
	}
}

// Warn shows a message that an operator should act on.
func (a *Env) Warn(format string, args ...any) {
	a.Emit(progress.Event{Kind: progress.Warning, Text: fmt.Sprintf(format, args...)})
}

// Note shows a message worth knowing.
func (a *Env) Note(format string, args ...any) {
	a.Emit(progress.Event{Kind: progress.Note, Text: fmt.Sprintf(format, args...)})
}

// Path returns the path of a file for this process.
func (a *Env) Path(p string) string { return path.Join("/", a.Root, p) }

// ReadFile reads a file of the machine.
func (a *Env) ReadFile(p string) ([]byte, error) { return a.Reader.ReadFile(p) }

// Run runs a program; see Reader.
func (a *Env) Run(
	ctx context.Context, limit time.Duration, secret []byte, argv ...string,
) ([]byte, error) {
	return a.Reader.Run(ctx, limit, secret, argv...)
}

// Options returns the connection options for the API server.
func (a *Env) Options(c config.Config) kube.Options {
	return kube.Options{Proxy: c.ProxyFunc(), Dial: a.Dial}
}

// Every returns the pause of a wait.
func (a *Env) Every(usual time.Duration) time.Duration { return cmp.Or(a.Poll, usual) }

// TrustedFile returns an error if a user other than root can change a file.
func (a *Env) TrustedFile(file string) error {
	if a.Trusted != nil {
		return a.Trusted(file)
	}
	return config.Trusted(file)
}

// Node is a check's view of a machine and its records. It changes neither.
type Node struct {
	*Env
	Saved  *saved.State
	ledger ledger
}

// ledger reads the records of the machine from before it became a node.
type ledger interface {
	Ledger() state.Ledger
	Exists() bool
}

func open(ctx context.Context, a *Env) (*Node, error) {
	journal := apply.NewJournal(nil, saved.StateDir, saved.LedgerFile)
	if err := journal.Read(a.Reader); err != nil {
		return nil, err
	}
	n := NewNode(a, journal)
	return n, n.Open(ctx)
}

// NewNode returns a node of which only the ledger was read.
func NewNode(a *Env, l ledger) *Node { return &Node{Env: a, Saved: saved.New(a.Reader), ledger: l} }

// Open fills the saved state from disk, unless the ledger is lost.
func (n *Node) Open(ctx context.Context) error {
	if !n.ledger.Exists() {
		if err := n.Saved.LedgerLost(); err != nil {
			return err
		}
	}
	return n.Read(ctx)
}

// Read fills the saved state from disk.
func (n *Node) Read(ctx context.Context) error {
	if err := n.Saved.Read(ctx); err != nil {
		return err
	}
	for _, c := range n.Saved.Secrets {
		n.Conceal(c.BootstrapToken.Reveal(), c.ClientSecret.Reveal())
	}
	// Kubelet runs this program for tokens if the recorded one is gone, as when a package has replaced
	// a manual installation. The change is drift.
	was := n.Saved.Bindings.Program
	_, err := os.Stat(was)
	if was != "" && errors.Is(err, fs.ErrNotExist) && n.TrustedFile(n.Program) == nil {
		n.Saved.Bindings.Program = n.Program
	}
	return nil
}

// Records returns the saved records, for callers that need nothing else.
func (a *Env) Records() saved.Records { return saved.NewRecords(a.Reader) }

// ErrNoNode reports that a verb needs a node.
var ErrNoNode = errors.New("this machine is not a node: run `aks-flex-node bootstrap` first")

// LogError logs an error that does not stop the work as a warning; nil is none.
func LogError(log *slog.Logger, what string, err error) {
	if err != nil {
		log.Warn(what, "error", err)
	}
}

// Stamp returns the current time in the precision of records.
func Stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// Applied returns the configuration of this node without secrets, the defaults for a new one; nil
// if the machine is not a node.
func Applied(ctx context.Context, a *Env) (*config.Config, error) {
	h := NewNode(a, nil)
	id, err := h.Saved.Generations.Target(ctx, generation.Applied)
	if err == nil && id == "" {
		id, err = h.Saved.Generations.Target(ctx, generation.Live)
	}
	if err != nil || id == "" {
		return nil, err
	}
	c, err := h.Saved.Generations.Config(id)
	return &c, err
}

// HasJoined reports whether the machine has been the node. One that is still joining has not.
func HasJoined(ctx context.Context, a *Env) (bool, error) {
	id, err := NewNode(a, nil).Saved.Generations.Target(ctx, generation.Applied)
	return id != "", err
}

// Source returns the origin of the configuration; zero for none.
func Source(a *Env) saved.Source {
	from, err := a.Records().Source()
	LogError(a.Log, "cannot determine which version is applied", err)
	return from
}

// Parts returns the files and units of the applied node; none if there is no node.
func Parts(ctx context.Context, a *Env) (files, units []string) {
	h, err := open(ctx, a)
	if err != nil || h.Saved.Applied == nil {
		return nil, nil
	}
	for _, item := range node.Bind(h.Saved.Applied.Node, h.Saved.Bindings.Bindings) {
		name := item.Resource.Key().Name()
		switch item.Resource.(type) {
		case state.Unit:
			units = append(units, name)
		case state.File, state.Link, state.Dir:
			files = append(files, name)
		}
	}
	return files, units
}
