// Package inspect gathers evidence: how the machine, its Node object, its API server and its
// records are. It takes a Reader, which has no Set, and a saved.State, which cannot be written: a
// check changes nothing. Conditions follow from the evidence in package health.
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

// Reader is a machine (host.Host) as a check reads it. It cannot change the machine.
type Reader interface {
	// Observe returns what is at key; state.Unknown when that cannot be found out now.
	Observe(ctx context.Context, key state.Key) (state.Resource, error)
	ReadFile(path string) ([]byte, error)
	Open(path string) (io.ReadCloser, error)
	List(dir string) ([]string, error)
	Rivals() []string // the units of other container runtimes and kubelets
	Facts(ctx context.Context, q host.Query) (host.Facts, error)
	Examine(modules []string, dir, resolvConf string) host.Examination
	Upkeep(ctx context.Context, dirs []string) host.Upkeep
	CNIConfigs(dir string) ([]string, error)
	UnitStatus(ctx context.Context, name string) (host.UnitStatus, error)
	Journal(ctx context.Context, unit string, lines int) []string
	// OpeningCommands returns the commands that make an opening in a firewall, for people to run.
	OpeningCommands(o state.Opening) []string
	DialFromPod(ctx context.Context, to netip.AddrPort) error
	// Run runs a program for limit at longest; secret, if not nil, is the content of a file that
	// only root reads while it runs, whose path is the last argument.
	Run(ctx context.Context, limit time.Duration, secret []byte, argv ...string) ([]byte, error)
}

// Env is the environment in which a process of the agent inspects a machine.
type Env struct {
	Reader Reader
	// Root is put before every path; "" on a real machine.
	Root string
	Log  *slog.Logger
	// Show receives progress; nil shows nothing.
	Show func(progress.Event)
	Beat func() // called as work goes on; nil is not called
	// Learn receives each configuration's secrets, so that no log shows them; nil receives none.
	Learn func(secrets ...string)
	// Dial opens connections to the API server; nil is the network.
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	InService bool // this process is the daemon's own service, which must not stop itself
	// Program is the path of aks-flex-node, which kubelet calls for tokens; Version is its own.
	Program, Version string
	// Trusted is an error when another user than root can change a program; nil is config.Trusted.
	Trusted func(program string) error
	// Today returns the day by which the end of support of versions is judged; nil judges none.
	Today    func() time.Time
	Poll     time.Duration // the first pause of a wait for kubelet or Azure; 0 is that of each wait
	Patience time.Duration // limits doctor's wait for one server; 0 is its default
	// Settling is the time that kubelet must be one process before a commit; 0 is defaultSettling.
	Settling time.Duration
	// Healthz asks kubelet's health endpoint; nil asks the one on this machine.
	Healthz func(context.Context) error
	// Runtime asks whether the runtime serves kubelet (kube.Runtime); nil asks this machine's.
	Runtime func(context.Context) error

	// unanswered counts the questions in a row that the container runtime has not answered.
	unanswered int
	shown      shownArc     // the last answer of a slow Arc agent
	version    knownVersion // the last one of the API server that works with kubelet's
}

// Emit shows progress, which is a sign of life too.
func (a *Env) Emit(e progress.Event) {
	a.Alive()
	if a.Show != nil {
		a.Show(e)
	}
}

// Alive notes that work goes on.
func (a *Env) Alive() {
	if a.Beat != nil {
		a.Beat()
	}
}

// Conceal passes on secrets that no log may show.
func (a *Env) Conceal(secrets ...string) {
	if a.Learn != nil {
		a.Learn(secrets...)
	}
}

// Warn shows what an operator should know.
func (a *Env) Warn(format string, args ...any) {
	a.Emit(progress.Event{Kind: progress.Warning, Text: fmt.Sprintf(format, args...)})
}

// Note shows what is worth knowing.
func (a *Env) Note(format string, args ...any) {
	a.Emit(progress.Event{Kind: progress.Note, Text: fmt.Sprintf(format, args...)})
}

// Path returns the path of a file as this process reaches it.
func (a *Env) Path(p string) string { return path.Join("/", a.Root, p) }

// ReadFile reads a file of the machine.
func (a *Env) ReadFile(p string) ([]byte, error) { return a.Reader.ReadFile(p) }

// Run runs a program; see Reader.
func (a *Env) Run(
	ctx context.Context, limit time.Duration, secret []byte, argv ...string,
) ([]byte, error) {
	return a.Reader.Run(ctx, limit, secret, argv...)
}

// Options returns how the API server is reached.
func (a *Env) Options(c config.Config) kube.Options {
	return kube.Options{Proxy: c.ProxyFunc(), Dial: a.Dial}
}

// Every returns the pause of a wait.
func (a *Env) Every(usual time.Duration) time.Duration { return cmp.Or(a.Poll, usual) }

// TrustedFile returns an error when another user than root can change a file.
func (a *Env) TrustedFile(file string) error {
	if a.Trusted != nil {
		return a.Trusted(file)
	}
	return config.Trusted(file)
}

// Node is a machine as a check sees it: what is on it and remembered of it. It changes neither.
type Node struct {
	*Env
	Saved  *saved.State
	ledger ledger
}

// ledger reads what is remembered of the machine before it became a node.
type ledger interface {
	Ledger() state.Ledger
	Exists() bool
}

func open(ctx context.Context, a *Env) (*Node, error) {
	journal, err := apply.ReadJournal(a.Reader, saved.StateDir, saved.LedgerFile)
	if err != nil {
		return nil, err
	}
	n := NewNode(a, journal)
	return n, n.Open(ctx)
}

// NewNode returns a node of which nothing but the ledger was read.
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
	adoptProgram(n)
	return nil
}

// Records returns the saved records, for what needs nothing else.
func (a *Env) Records() saved.Records { return saved.NewRecords(a.Reader) }

// adoptProgram makes this program the one that kubelet calls for tokens when that one is gone, as
// when a package has replaced an installation by hand. That is drift, then.
func adoptProgram(n *Node) {
	was := n.Saved.Bindings.Program
	if _, err := os.Stat(was); was == "" || !errors.Is(err, fs.ErrNotExist) ||
		n.TrustedFile(n.Program) != nil {
		return
	}
	n.Saved.Bindings.Program = n.Program
}

// ErrNoNode reports that a verb needs a node.
var ErrNoNode = errors.New(
	"this machine is not a node: run `aks-flex-node bootstrap --config FILE` first")

// Stamp is the time as it is recorded.
func Stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// Applied is the configuration of this node without secrets, from which a new one takes what it
// leaves open; nil when the machine is no node.
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

// HasJoined reports whether the machine was the node once, which one that joins is not yet.
func HasJoined(ctx context.Context, a *Env) (bool, error) {
	id, err := NewNode(a, nil).Saved.Generations.Target(ctx, generation.Applied)
	return id != "", err
}

// AppliedResource is where the configuration is from that the node runs on; zero for none.
func AppliedResource(a *Env) config.Resource {
	from, err := a.Records().Source()
	if err != nil {
		a.Log.Warn("cannot determine which version is applied", "error", err)
	}
	return from.Applied
}

// Parts returns the files and units of the applied node; none without one.
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
