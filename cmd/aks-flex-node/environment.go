package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/Azure/AKSFlexNode/internal/agent"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/progress"
)

// agent puts together what a verb works with. With a configuration it also writes the log file; a
// verb that only looks leaves none. The function that it returns ends the progress and closes
// everything; it may be called twice.
func (o *options) agent(c *config.Config) (*agent.Agent, func(), error) {
	if err := asRoot(); err != nil {
		return nil, nil, err
	}
	return o.wire(c)
}

// looking is agent for a verb that only looks, and that anybody may run.
func (o *options) looking() (*agent.Agent, func(), error) { return o.wire(nil) }

func (o *options) wire(c *config.Config) (*agent.Agent, func(), error) {
	service := os.Getenv("AKS_FLEX_NODE_SERVICE") != ""
	program, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot tell where aks-flex-node is: %w", err)
	}
	log, logFile := o.logger(c, service)
	machine := host.New("", log)
	machine.SecretDir, machine.PackageDir = agent.RunDir, agent.PackageDir
	view := o.view(service)
	told := &progress.Log{Log: log}
	a := &agent.Agent{
		Machine: machine,
		Log:     log,
		Show:    func(e progress.Event) { view.Show(e); told.Show(e) },
		Client: func(proxy func(*http.Request) (*url.URL, error)) *http.Client {
			return artifact.NewClient(proxy)
		},
		Given:     o.reread,
		InService: service,
		Terminal:  !service && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(o.err.Fd())),
		Program:   program,
		Version:   version,
	}
	closed := false
	return a, func() {
		if closed {
			return
		}
		closed = true
		view.Close()
		machine.Close()
		logFile.Close()
	}, nil
}

// reread is the configuration as it is now; nil when it cannot be read.
func (o *options) reread() *config.Config {
	read, err := config.Load(o.config, nil)
	if err != nil {
		return nil
	}
	return &read.Config
}

// view chooses how progress is shown beside the log: drawn on a terminal, not at all in a service,
// else as lines.
func (o *options) view(service bool) progress.View {
	fd := int(o.err.Fd())
	switch {
	case service:
		return &progress.Lines{Out: io.Discard}
	case term.IsTerminal(fd) && os.Getenv("TERM") != "dumb":
		return progress.NewTerminal(o.err, func() int { return width(fd) })
	default:
		return &progress.Lines{Out: o.err}
	}
}

func width(fd int) int {
	if w, _, err := term.GetSize(fd); err == nil && w > 20 {
		return w
	}
	return 80
}

// The log file: how large one becomes, in MB, and how many old ones are kept.
const (
	logSize  = 10
	logFiles = 5
)

// logger writes to the log file and, in a service, to the journal as well. The directory is made
// here, so that the log tells of the whole run; the node claims it like any other directory of
// ours.
func (o *options) logger(c *config.Config, service bool) (*slog.Logger, io.Closer) {
	if c == nil {
		return slog.New(slog.DiscardHandler), io.NopCloser(nil)
	}
	file := &lumberjack.Logger{
		Filename: filepath.Join(c.Agent.LogDir, "aks-flex-node.log"),
		MaxSize:  logSize, MaxBackups: logFiles,
	}
	var out io.Writer = &lateFile{file}
	if service {
		out = io.MultiWriter(out, o.err)
	}
	out = &scrubber{out: out, secrets: c.Secrets()}
	options := &slog.HandlerOptions{Level: level(c.Agent.LogLevel)}
	return slog.New(slog.NewTextHandler(out, options)), file
}

// lateFile writes to a log file from the moment that its directory exists: before the node claims
// it there is nothing of ours on the machine, and a log must not be the first.
type lateFile struct{ file *lumberjack.Logger }

func (l *lateFile) Write(p []byte) (int, error) {
	if info, err := os.Stat(filepath.Dir(l.file.Filename)); err != nil || !info.IsDir() {
		return len(p), nil
	}
	return l.file.Write(p)
}

// scrubber takes known secrets out of what is written, should any text from elsewhere carry one.
type scrubber struct {
	out     io.Writer
	secrets []string
}

func (s *scrubber) Write(p []byte) (int, error) {
	text := string(p)
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

func level(name string) slog.Level {
	switch name {
	case "debug":
		return slog.LevelDebug
	case "warn", "warning":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
