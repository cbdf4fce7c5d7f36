package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

// agent puts together what a verb works with, on a machine with a configuration, or with none yet.
// A verb that only looks writes no log. The function that it returns ends the progress and closes
// everything; it may be called twice.
func (o *options) agent(c *config.Config) (*change.Agent, func(), error) {
	service := os.Getenv("AKS_FLEX_NODE_SERVICE") != ""
	program, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot tell where aks-flex-node is: %w", err)
	}
	log := slog.New(slog.DiscardHandler)
	if o.changes {
		o.journal = o.newJournal(c)
		log = o.journal.logger(c)
	}
	machine := newMachine(log)
	show, end := o.view(service)
	a := &change.Agent{
		Env: inspect.Env{
			Reader: machine, Log: log, Learn: o.secrets.Know, InService: service,
			Show:    func(e progress.Event) { show(e); progress.Log(log, e) },
			Program: program, Version: version, Today: time.Now,
		},
		Machine:  machine,
		Client:   artifact.NewClient,
		Identity: follow.NodeIdentity,
		Given:    o.reread,
	}
	a.Person.Terminal = !service && width(os.Stdin) >= 0 && width(o.stderr) >= 0
	machine.Beat = func() {
		if a.Beat != nil { // the service's, which comes later
			a.Beat()
		}
	}
	if a.Person.Terminal {
		if a.Person.Invoker, err = host.Invoker(os.Getenv); err != nil {
			fmt.Fprintf(o.err, "warning: root's login of the Azure CLI is used: %v\n", err)
		}
	}
	return a, sync.OnceFunc(func() {
		end()
		machine.Close()
		if o.journal != nil {
			o.journal.file.Close()
		}
	}), nil
}

// newMachine returns the machine that this process runs on.
func newMachine(log *slog.Logger) *host.Host {
	machine := host.New("", log)
	machine.SecretDir, machine.PackageDir = saved.RunDir, access.PackageDir
	return machine
}

// reread is the configuration as it is now; nil when it cannot be read.
func (o *options) reread() *config.Config {
	read, err := config.Load(o.config, nil)
	if err != nil {
		return nil
	}
	o.secrets.Know(read.Config.Secrets()...)
	return &read.Config
}

// width returns how many columns a terminal has; -1 for another file.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return -1
	}
	return int(size.Col)
}

// view chooses how progress is shown beside the log: drawn on a terminal, not at all in a service,
// else as lines; end takes away what is drawn.
func (o *options) view(service bool) (show func(progress.Event), end func()) {
	switch {
	case service:
		return func(progress.Event) {}, func() {}
	case width(o.stderr) >= 0 && os.Getenv("TERM") != "dumb":
		terminal := progress.NewTerminal(o.stderr, func() int {
			if w := width(o.stderr); w > 20 {
				return w
			}
			return 80
		})
		return terminal.Show, terminal.Close
	default:
		return progress.Lines(o.err), func() {}
	}
}
