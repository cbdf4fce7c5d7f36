// Package agent holds the verbs: bootstrap, plan, drift, repair, unbootstrap, status, and the daemon that repeats some of them.
// Each verb renders a node, has package apply bring it about, and keeps what must outlast it in the state directory. What
// stays imperative here is conversation with strangers: mirrors, the API server, kubelet.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"time"

	"github.com/Azure/AKSFlexNode/internal/aks"
	"github.com/Azure/AKSFlexNode/internal/apply"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

// Where the agent keeps what is its own.
const (
	StateDir = "/var/lib/aks-flex-node"
	RunDir   = "/run/aks-flex-node"
	// Service is the unit that runs the daemon, when it was installed as one.
	Service = "aks-flex-node-agent.service"
)

// Machine is the host with what only the agent asks of it.
type Machine interface {
	apply.Host
	Facts(ctx context.Context, q host.Query) (host.Facts, error)
	// Journal returns the last lines that a unit has logged.
	Journal(ctx context.Context, unit string, lines int) []string
	// Run runs a program of somebody else; a secret is handed over in a file whose path is the last argument.
	Run(ctx context.Context, secret []byte, argv ...string) ([]byte, error)
	// RunOnTerminal runs a program that talks to the person at the terminal.
	RunOnTerminal(ctx context.Context, argv ...string) error
	RestartUnit(ctx context.Context, name string) error
}

// Agent runs verbs on one machine.
type Agent struct {
	Machine Machine
	// Root is put before every path; "" on a real machine.
	Root string
	Log  *slog.Logger
	// Show receives progress; nil shows nothing.
	Show func(progress.Event)
	// Now is the clock; nil is the real one.
	Now func() time.Time
	// Client makes the HTTP client that artifacts are fetched with, over the configured proxy.
	Client func(proxy func(*http.Request) (*url.URL, error)) *http.Client
	// InService tells that this process is the daemon's own service, which must not stop itself.
	InService bool
	// Terminal tells that there is a person to be asked.
	Terminal bool
	// Program is the path of aks-flex-node, which kubelet calls for tokens.
	Program string
	// Poll is how often kubelet's credential is looked for while kubelet joins.
	Poll time.Duration
}

func (a *Agent) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

func (a *Agent) show(e progress.Event) {
	if a.Show != nil {
		a.Show(e)
	}
}

func (a *Agent) warn(format string, args ...any) {
	a.show(progress.Event{Kind: progress.Warning, Text: fmt.Sprintf(format, args...)})
}

func (a *Agent) path(p string) string { return path.Join("/", a.Root, p) }

// session is one verb at work: it holds the lock and the open ledger.
type session struct {
	*Agent
	engine  *apply.Engine
	records records
	lock    *lock
	// asked is what Azure has said about the cluster; nil when it was not asked.
	asked *aks.Cluster
	// enrolled tells that in this run the machine was found, or made, an Arc machine whose identity the cluster lets in.
	enrolled bool
}

// open starts a verb that may write. It takes the lock, reads the ledger and clears away what a killed run left half written.
func (a *Agent) open(verb string) (*session, error) {
	l, err := acquire(a.path(RunDir), Holder{PID: os.Getpid(), Verb: verb, Since: a.now()})
	if err != nil {
		return nil, err
	}
	s, err := a.look()
	if err == nil {
		s.lock = l
		err = a.Machine.Sweep(s.engine.Journal.Ledger().Keys())
	}
	if err != nil {
		l.release()
		return nil, err
	}
	return s, nil
}

// look starts a verb that only reads: no lock, no write.
func (a *Agent) look() (*session, error) {
	journal, err := apply.OpenJournal(a.Machine, StateDir)
	if err != nil {
		return nil, err
	}
	s := &session{Agent: a, records: records{host: a.Machine, dir: StateDir}}
	s.engine = &apply.Engine{Host: a.Machine, Journal: journal, Log: a.Log}
	if err := s.lost(); err != nil {
		return nil, err
	}
	return s, nil
}

// ErrLedgerLost tells that the machine is a node but that nothing says how it was before.
var ErrLedgerLost = errors.New("the ledger is gone, so what the machine was before is not known")

// lost tells a machine without a ledger from a machine that has lost it.
func (s *session) lost() error {
	var join JoinState
	if s.engine.Journal.Exists() {
		return nil
	}
	if ok, err := s.records.load(joinFile, &join); err != nil || !ok {
		return err
	}
	return fmt.Errorf("cannot read %s: %w", s.records.path("ledger.json"), ErrLedgerLost)
}

func (s *session) close() { s.lock.release() }

// proxy returns the proxy function of a configuration; nil when there is none.
func proxy(c config.Config) func(*http.Request) (*url.URL, error) { return c.ProxyFunc() }

// kubelet returns a client with the credential that kubelet has on this machine.
func (s *session) kubelet(c config.Config) (*kube.Client, error) {
	return kube.FromKubeconfig(s.path(node.KubeconfigPath(c.Paths.Kubernetes.KubeletDir)), proxy(c))
}
