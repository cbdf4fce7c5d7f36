// Command aks-flex-node makes a Linux machine a worker node of an AKS cluster, keeps it as
// configured, and gives it back in its old state.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

// Exit codes of all commands. They are part of the CLI: docs/reference/cli.md.
const (
	exitDone   = 0
	exitFailed = 1 // the command failed, or its result could not be written
	exitFound  = 2 // there are differences or faults, also after a node has joined
	exitConfig = 3 // the configuration or the command line is invalid; retrying will not help
	exitNoNode = 4 // this machine is not a node
)

// exitError exits with a code of its own; without err it prints nothing.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return fmt.Sprint(e.err) }
func (e exitError) Unwrap() error { return e.err }

// errFound makes a command exit with exitFound, after it has printed what it found.
var errFound error = exitError{code: exitFound}

func usageError(format string, args ...any) error {
	return exitError{exitConfig, fmt.Errorf(format+"\nSee `aks-flex-node --help`.", args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A lost terminal ends no command. The programs that it runs inherit only the former.
	signal.Ignore(syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	// The PATH of cron and of su without "-" lacks them.
	path := strings.TrimPrefix(os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin", ":")
	os.Setenv("PATH", path)
	results := &results{Writer: stdout}
	o := &options{
		out: untrusted.Writer(results), err: untrusted.Writer(stderr),
		stdout: stdout, stderr: stderr,
	}
	root := newRoot(o)
	root.SetArgs(args)
	root.SetOut(o.out)
	root.SetErr(o.err)
	err := root.ExecuteContext(ctx)
	o.end()
	if err != nil && !o.begun {
		err = usageError("%w", err)
	}
	if ctx.Err() != nil && err != nil {
		err = o.interrupted(err)
	}
	if results.err != nil && (err == nil || errors.Is(err, errFound)) {
		err = fmt.Errorf("cannot write the result: %w", results.err)
	}
	if err != nil && !errors.Is(err, errFound) {
		fmt.Fprintf(o.err, "Error: %v\n", err)
		o.logFailure(err)
	}
	return exitCode(err)
}

// results writes a command's output, and keeps the first error: a command whose output is lost, as
// on a full disk, has failed.
type results struct {
	io.Writer
	err error
}

func (r *results) Write(data []byte) (int, error) {
	n, err := r.Writer.Write(data)
	r.err = cmp.Or(r.err, err)
	return n, err
}

// interrupted returns the error of an interrupted command. Only a change of the machine continues.
func (o *options) interrupted(err error) error {
	switch {
	case errors.Is(err, errWithdrawn), errors.Is(err, errGoesOn), errors.Is(err, errNotConfirmed):
		return err
	case o.changes:
		return errors.New("interrupted; run the same command again to continue")
	}
	return errors.New("interrupted")
}

func exitCode(err error) int {
	own, ok := errors.AsType[exitError](err)
	_, invalid := errors.AsType[config.Problems](err)
	switch {
	case err == nil:
		return exitDone
	case ok:
		return own.code
	case invalid:
		return exitConfig
	case errors.Is(err, inspect.ErrNoNode):
		return exitNoNode
	}
	return exitFailed
}
