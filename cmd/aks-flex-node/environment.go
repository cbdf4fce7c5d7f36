package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/redact"
)

// agent builds the agent for a verb, with a configuration, or nil if none exists yet. A read-only
// verb writes no log.
func (o *options) agent(c *config.Config) (*change.Agent, error) {
	service := os.Getenv("AKS_FLEX_NODE_SERVICE") != ""
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the path of aks-flex-node: %w", err)
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
		Machine: machine, Client: artifact.NewClient, Identity: follow.NodeIdentity, Given: o.reread,
	}
	a.Person.Terminal = !service && width(os.Stdin) >= 0 && width(o.stderr) >= 0
	machine.Beat = func() {
		if a.Beat != nil { // the service sets it later
			a.Beat()
		}
	}
	if a.Person.Terminal {
		if a.Person.Invoker, err = host.Invoker(os.Getenv); err != nil {
			fmt.Fprintf(o.err, "warning: using root's login of the Azure CLI: %v\n", err)
		}
	}
	o.opened = append(o.opened, end, machine.Close)
	return a, nil
}

// end ends the progress, and closes what agent has opened.
func (o *options) end() {
	for _, end := range o.opened {
		end()
	}
	o.opened = nil
	if o.journal != nil {
		o.journal.file.Close()
	}
}

func newMachine(log *slog.Logger) *host.Host {
	machine := host.New("", log)
	machine.SecretDir, machine.PackageDir = saved.RunDir, access.PackageDir
	return machine
}

func (o *options) reread() *config.Config {
	read, err := config.Load(o.config, o.applied(context.Background())) // it only reads files
	if err != nil {
		return nil
	}
	o.secrets.Know(read.Config.Secrets()...)
	return &read.Config
}

// width returns the number of columns of a terminal; -1 for any other file.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return -1
	}
	return int(size.Col)
}

// view returns the progress beside the log: drawn on a terminal, none in a service, else lines.
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
	}
	return progress.Lines(o.err), func() {}
}

// The log is rotated at 10 MB and five old files are kept, so that it cannot fill the disk.
const logSize, logFiles = 10, 5

// journal is the log of a machine: a file, created by the first command that changes something and
// kept when the machine is given back, and, for the service, systemd's journal.
type journal struct {
	secrets *redact.Redactor
	file    *lumberjack.Logger
	err     io.Writer // standard error of the service, else nil
}

// newJournal returns the log for a configuration; nil if none exists yet.
func (o *options) newJournal(c *config.Config) *journal {
	dir := config.DefaultLogDir
	if c != nil {
		dir = c.Agent.LogDir
		o.secrets.Know(c.Secrets()...)
	}
	j := &journal{secrets: &o.secrets, file: &lumberjack.Logger{
		Filename: filepath.Join(dir, "aks-flex-node.log"), MaxBackups: logFiles,
	}}
	service := os.Getenv("AKS_FLEX_NODE_SERVICE") != ""
	_, err := os.Stat(inspect.SocketFile)
	j.file.MaxSize = rotatesAt(service, err == nil)
	if service {
		j.err = o.err
	}
	return j
}

// rotatesAt returns the size, in MB, at which a process rotates the log. Only one may do so
// (lumberjack): the service, if it runs, or else the command that changes the machine.
func rotatesAt(service, running bool) int {
	if running && !service {
		return math.MaxInt32
	}
	return logSize
}

func (j *journal) logger(c *config.Config) *slog.Logger {
	var level slog.LevelVar // info
	if c != nil {
		// "warning" in the configuration is slog's "warn"; the other names are the same. Load has checked
		// it.
		_ = level.UnmarshalText([]byte(strings.TrimSuffix(c.Agent.LogLevel, "ing")))
	}
	options := &slog.HandlerOptions{Level: &level}
	if c != nil && c.Agent.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(j, options))
	}
	return slog.New(slog.NewTextHandler(j, options))
}

// failed logs the error of a command to the file. systemd's journal gets it from standard error.
func (j *journal) failed(err error) {
	only := &journal{secrets: j.secrets, file: j.file}
	only.logger(nil).Error("the command has failed", "error", err)
}

// logFailure logs the error of a command that changes the machine, even without a configuration.
func (o *options) logFailure(err error) {
	if e, _ := errors.AsType[exitError](err); e.code == exitConfig || !o.changes || asRoot() != nil {
		return
	}
	if o.journal == nil {
		o.journal = o.newJournal(nil)
	}
	o.journal.failed(err)
	o.journal.file.Close()
}

// Write implements io.Writer. An unwritable file does not affect the journal.
func (j *journal) Write(p []byte) (int, error) {
	text := []byte(j.secrets.RedactProse(string(p)))
	if j.err != nil {
		if _, err := j.err.Write(text); err != nil {
			return 0, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(j.file.Filename), 0o750); err != nil {
		return 0, err
	}
	if _, err := j.file.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}
