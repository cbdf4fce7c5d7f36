package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// fetchFor is how long is tried again to fetch the configuration.
const fetchFor = 5 * time.Minute

// maxURL bounds a configuration URL, in bytes.
const maxURL = 8 << 10

// handOver is set in the environment of the process that joins and then starts the service.
const handOver = "AKS_FLEX_NODE_HAND_OVER"

// deliver fetches the configuration behind a URL, and goes on without it.
func (o *options) deliver(cmd *cobra.Command, from string) error {
	if cmd.Flags().Changed("config") {
		return usageError("cannot use both --config and --config-url")
	}
	service, err := o.receive(cmd.Context(), from)
	if err != nil {
		return err
	}
	environment := os.Environ()
	if service {
		environment = append(environment, handOver+"=1")
	}
	// Another process takes the place of this one, so that the URL leaves the list of processes.
	return replaceProcess([]string{os.Args[0], "agent", "--output", o.output}, environment)
}

// replaceProcess has another process of this program take the place of this one.
func replaceProcess(args, environment []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot tell where aks-flex-node is: %w", err)
	}
	err = syscall.Exec(program, args, environment)
	return fmt.Errorf("cannot run %s: %w", program, err)
}

// receive fetches the configuration behind a URL and makes it the one of this machine; - stands for
// a URL on standard input. It reports whether there is a service that can take over.
func (o *options) receive(ctx context.Context, from string) (service bool, err error) {
	if from == "-" {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, maxURL))
		if err != nil {
			return false, fmt.Errorf("cannot read the configuration URL: %w", err)
		}
		from = string(text)
	}
	from = strings.TrimSpace(from)
	o.secrets.Know(from)
	u, err := follow.ParseURL(from)
	if err != nil {
		return false, usageError("%w", err)
	}
	before := o.applied(ctx)
	a, done, err := o.agent(before)
	if err != nil {
		return false, err
	}
	defer done()
	known, err := change.Received(a, u.Digest())
	if err == nil && !known {
		err = o.fetch(ctx, a, u, before)
	}
	if err != nil || a.InService {
		return false, err
	}
	return change.EnableService(ctx, a)
}

// fetch fetches a configuration and has the agent keep it.
func (o *options) fetch(
	ctx context.Context, a *change.Agent, u follow.URL, before *config.Config,
) error {
	fetcher := follow.Fetcher{
		Client: follow.NewClient(http.ProxyFromEnvironment), For: fetchFor,
		Waiting: func(err error, pause time.Duration) {
			fmt.Fprintf(o.err, "%v; trying again in %s\n", err, pause.Round(time.Second))
		},
	}
	bundle, err := fetcher.Fetch(ctx, u)
	if err != nil {
		return err
	}
	if _, _, err := follow.Verify(bundle, config.JoiningOf(bundle).Root); err != nil {
		return fmt.Errorf("cannot use the configuration that %s has given: %w", u.Host, err)
	}
	read, err := config.Read(bundle, before)
	o.secrets.Know(read.Config.Secrets()...)
	o.warn(read)
	if err != nil {
		return fmt.Errorf("cannot use the configuration that %s has given: %w", u.Host, err)
	}
	err = change.Receive(ctx, a, change.Delivery{Bundle: bundle, Loaded: read, URLSHA256: u.Digest()})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.err, "%s has given the configuration of the node %s\n", u.Host,
		read.Config.Agent.NodeName)
	return nil
}

// errWithdrawn tells that a delivery was interrupted on a machine that has another configuration.
var errWithdrawn = errors.New("interrupted: the configuration of the URL is taken back, and the " +
	"machine keeps the one of its file; ask for another URL to try again")

// joinAndHandOver joins with progress on the terminal, and leaves the rest to the service, which
// goes on also where this has failed or the terminal is gone.
func (o *options) joinAndHandOver(ctx context.Context) error {
	signal.Ignore(syscall.SIGHUP)
	if err := os.Unsetenv(handOver); err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	in, err := o.input(ctx)
	if err != nil {
		return err
	}
	a, done, err := o.agent(&in.Config)
	if err != nil {
		return err
	}
	defer done()
	result, err := change.Bootstrap(ctx, a, in)
	if busy, ok := errors.AsType[*host.LockedError](err); ok && busy.Holder.Verb == "agent" {
		fmt.Fprintf(o.err, "%s is joining this machine already; see `aks-flex-node status`\n",
			change.Service)
		return nil
	}
	if ctx.Err() == nil { // whoever interrupts this does not want it to go on by itself
		err = errors.Join(err, a.Machine.RestartUnit(ctx, change.Service))
	} else if back, e := change.Withdraw(context.WithoutCancel(ctx), a); e != nil || back {
		done()
		return errors.Join(e, errWithdrawn)
	}
	done()
	return o.printResult(result, err,
		"Node %s is Ready (%s, %.1f s); "+change.Service+" keeps it so\n")
}

// delivered reports whether this machine has its configuration from a resource provider.
func delivered() bool {
	_, err := os.Stat(saved.BundleFile)
	return err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission)
}
