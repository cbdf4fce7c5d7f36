package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/regular"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

const fetchFor = 5 * time.Minute // bounds the time of fetching the configuration

const maxURL = 8 << 10 // max length of a configuration URL

// handOver is set in the environment of the process that joins and then starts the service.
const handOver = "AKS_FLEX_NODE_HAND_OVER"

// delivery holds the options for a configuration URL.
type delivery struct {
	url, file, proxy, caFile, caPin string
	noWait                          bool
}

// trust returns the trust in the URL's server, by the CAs given now or kept from an earlier join.
func (d delivery) trust(kept []byte) (*follow.Trust, error) {
	if d.caFile != "" {
		own, err := regular.ReadFile(d.caFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the CA file: %w", err)
		}
		kept = own
	}
	return &follow.Trust{CA: kept, Pin: d.caPin}, nil
}

// distrust returns a hint if the server's certificate is from an untrusted CA, else "".
func (d delivery) distrust(err error) string {
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
		return ""
	}
	return "; if the provider has a CA of its own, name it with --ca-file or --ca-pin"
}

// route returns the proxy for the first contact, as there is no configuration yet.
func (d delivery) route() (func(*http.Request) (*url.URL, error), error) {
	if d.proxy == "" {
		return http.ProxyFromEnvironment, nil
	}
	proxy, err := url.Parse(d.proxy)
	if err != nil || proxy.Host == "" || proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, usageError("cannot use the proxy: it must be a URL such as http://proxy.example:3128")
	}
	return http.ProxyURL(proxy), nil
}

// withoutProxy returns a hint for a failed fetch if sudo may have dropped the proxy, else "".
func (d delivery) withoutProxy(getenv func(string) string) string {
	if d.proxy != "" || getenv("SUDO_UID") == "" || getenv("HTTPS_PROXY")+getenv("https_proxy") != "" {
		return ""
	}
	return "; no proxy is used: sudo does not pass on HTTPS_PROXY; use --proxy URL"
}

// deliver fetches the configuration of a URL, and continues in a process without the URL.
func (o *options) deliver(cmd *cobra.Command, from delivery) error {
	if cmd.Flags().Changed("config-url") && cmd.Flags().Changed("config-url-file") {
		return usageError("cannot use both --config-url and --config-url-file")
	}
	if o.named {
		return usageError("cannot use both --config and a configuration URL")
	}
	for _, name := range []string{"ca-file", "ca-pin"} { // e.g. from an unset variable
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
			return usageError("cannot identify the provider: --%s is empty", name)
		}
	}
	service, err := o.receive(cmd.Context(), from)
	if err != nil || from.noWait {
		return err
	}
	environment := os.Environ()
	if service {
		environment = append(environment, handOver+"=1")
	}
	// Replace this process by another one, so that the URL leaves the list of processes.
	return o.replaceProcess([]string{os.Args[0], "agent", "--output", o.output}, environment)
}

func (o *options) replaceProcess(args, environment []string) error {
	o.end()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the path of aks-flex-node: %w", err)
	}
	err = syscall.Exec(program, args, environment)
	return fmt.Errorf("cannot run %s: %w", program, err)
}

func (d delivery) read(ctx context.Context, warn io.Writer) (string, error) {
	in := os.Stdin
	switch {
	case d.file == "-" || d.url == "-":
	case d.file == "":
		fmt.Fprintln(warn, "warning: logs of sudo and the shell's history keep the URL of "+
			"--config-url, which is a secret; use --config-url-file FILE, or - for standard input")
		return d.url, nil
	default:
		var err error
		if in, err = os.Open(d.file); err != nil {
			return "", fmt.Errorf("cannot read the configuration URL: %w", err)
		}
		defer in.Close()
	}
	var text []byte
	read := make(chan error, 1)
	go func() { // an interrupt ends the process, which may read until then
		var err error
		text, err = io.ReadAll(io.LimitReader(in, maxURL))
		read <- err
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case err := <-read:
		if err != nil {
			return "", fmt.Errorf("cannot read the configuration URL: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
}

// receive fetches the configuration of a URL and makes it that of this machine. It reports whether
// there is a service that can take over.
func (o *options) receive(ctx context.Context, from delivery) (service bool, err error) {
	text, err := from.read(ctx, o.err)
	if err != nil {
		return false, err
	}
	o.secrets.Know(text)
	u, err := follow.ParseURL(text)
	if err != nil {
		return false, usageError("%w", err)
	}
	before := o.applied(ctx)
	a, err := o.agent(before)
	if err != nil {
		return false, err
	}
	known, err := change.Received(a, u.Digest())
	if err == nil && !known {
		err = o.fetch(ctx, a, u, from, before)
	}
	if err != nil || a.InService {
		return false, err
	}
	service, err = change.EnableService(ctx, a)
	switch {
	case err != nil || !from.noWait:
		return service, err
	case !service:
		return false, errors.New("cannot leave the join to " + change.Service + ": it is not installed")
	}
	return true, a.Machine.RestartUnit(ctx, change.Service)
}

func (o *options) fetch(
	ctx context.Context, a *change.Agent, u follow.URL, from delivery, before *config.Config,
) error {
	route, err := from.route()
	if err != nil {
		return err
	}
	joined, err := a.Records().Joining()
	if err != nil {
		return err
	}
	trust, err := from.trust(joined.ProviderCA)
	if err != nil {
		return err
	}
	client, err := trust.Client(route, u)
	if err != nil {
		return usageError("%w", err)
	}
	hint := from.withoutProxy(os.Getenv)
	fetcher := follow.Fetcher{
		Client: client, For: fetchFor,
		Waiting: func(err error, pause time.Duration) {
			fmt.Fprintf(o.err, "%v%s%s; trying again in %s\n", err, from.distrust(err), hint,
				pause.Round(time.Second))
			hint = ""
		},
	}
	bundle, err := fetcher.Fetch(ctx, u)
	if err == nil {
		bundle, err = withCA(bundle, trust.Kept())
	}
	if err != nil {
		return err
	}
	if _, _, err := follow.Verify(bundle, config.JoiningOf(bundle).Root); err != nil {
		return fmt.Errorf("cannot use the configuration from %s: %w", u.Host, err)
	}
	read, err := config.Read(bundle, before)
	o.secrets.Know(read.Config.Secrets()...)
	o.warn(read)
	if err != nil {
		return fmt.Errorf("cannot use the configuration from %s: %w", u.Host, err)
	}
	err = change.Receive(ctx, a, change.Delivery{Bundle: bundle, Loaded: read, URLSHA256: u.Digest()})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.err, "%s has given the configuration of the node %s\n", u.Host,
		read.Config.Agent.NodeName)
	return nil
}

// withCA adds the provider's CAs to a bundle that has none.
func withCA(bundle, ca []byte) ([]byte, error) {
	joining := config.JoiningOf(bundle)
	if len(ca) == 0 || joining.ProviderCA != nil {
		return bundle, nil
	}
	joining.ProviderCA = ca
	return config.WithJoining(bundle, joining)
}

var errWithdrawn = errors.New("interrupted: the configuration from the URL is discarded, and " +
	"the machine keeps the one from its file; request another URL to try again")

var errGoesOn = errors.New("interrupted: " + change.Service + " goes on with the configuration " +
	"from the URL, which `aks-flex-node unbootstrap` ends")

// joinAndHandOver joins with progress on the terminal, and leaves the rest to the service, which
// continues even if this fails or the terminal is gone.
func (o *options) joinAndHandOver(ctx context.Context) error {
	_ = os.Unsetenv(handOver) // fails only for an empty name
	a, result, err := o.join(ctx, o.joinAfterService)
	if a == nil {
		return err
	}
	if ctx.Err() == nil { // an interrupt means that it must not continue by itself
		err = errors.Join(err, a.Machine.RestartUnit(ctx, change.Service))
	} else if back, e := change.Withdraw(context.WithoutCancel(ctx), a); e != nil {
		return fmt.Errorf("%w: %w", errGoesOn, e)
	} else if back {
		return errWithdrawn
	}
	return o.printResult(result, err,
		"Node %s is Ready (%s, %.1f s); "+change.Service+" keeps it so\n")
}

// joinAfterService joins. If the service is already joining, it shows the service's progress:
// afterwards the machine is the node, or this finds out why not.
func (o *options) joinAfterService(
	ctx context.Context, a *change.Agent, in change.Input,
) (change.Result, error) {
	const pause = time.Second
	doing := ""
	for {
		result, err := change.Bootstrap(ctx, a, in)
		busy, locked := errors.AsType[*host.LockedError](err)
		if !locked || busy.Holder.Verb != "agent" || !wait.Sleep(ctx, pause) {
			return result, err
		}
		if w := inspect.Working(ctx, &a.Env); w != nil && doing != w.Doing {
			doing = w.Doing
			fmt.Fprintf(o.err, "%s joins this machine: %s\n", change.Service, doing)
		}
	}
}

// delivered reports whether this machine's configuration is from a resource provider.
func delivered() bool {
	_, err := os.Stat(saved.BundleFile)
	return err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission)
}
