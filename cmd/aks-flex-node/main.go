// Command aks-flex-node makes a Linux machine a worker node of an AKS cluster, keeps it as
// configured, and gives it back as it was.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Exit codes. They are part of the interface: docs/operations.md.
const (
	exitDone    = 0
	exitFailed  = 1
	exitChanges = 2 // plan, drift, diff: there is something to do
	exitNotRun  = 2 // doctor, endpoints: they could not run
	exitConfig  = 3 // the configuration or the command line is wrong; trying again will not help
)

// errChanges makes plan and drift exit with exitChanges; it is no failure and prints nothing.
var errChanges = errors.New("there is something to do")

// usageError is a command line that cannot be run.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() + "\nSee `aks-flex-node --help`." }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	o := &options{streams: streams{out: stdout, err: stderr}}
	root := newRoot(o)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && err != nil {
		err = o.interrupted(err)
	}
	if err != nil && !errors.Is(err, errChanges) && !errors.Is(err, errFindings) {
		fmt.Fprintf(stderr, "Error: %v\n", err)
		o.logFailure(err)
	}
	return exitCode(err)
}

// interrupted is what becomes of the error of a command that was interrupted. Only one that changes
// the machine has something to go on with.
func (o *options) interrupted(err error) error {
	_, notRun := errors.AsType[notRunError](err)
	switch {
	case errors.Is(err, errWithdrawn), errors.Is(err, errNotConfirmed):
		return err
	case o.changes:
		return errors.New("interrupted; the same command goes on from here")
	case notRun:
		return notRunError{errors.New("interrupted")}
	}
	return errors.New("interrupted")
}

func exitCode(err error) int {
	_, usage := errors.AsType[usageError](err)
	_, invalid := errors.AsType[config.Problems](err)
	_, notRun := errors.AsType[notRunError](err)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errChanges):
		return exitChanges
	case notRun:
		return exitNotRun
	case usage || invalid:
		return exitConfig
	default:
		return exitFailed
	}
}
