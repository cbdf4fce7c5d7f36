package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/diagnose"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/agent/service"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/policy"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

func agentCommand(o *options) *cobra.Command {
	var from delivery
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Join the cluster, then keep the node as configured",
		Long: `Makes this machine the node that the configuration describes, as bootstrap does, and
then keeps it as configured: every minute it checks the node's health and drift and writes
them to /run/aks-flex-node/status.json, repairs drift if agent.driftPolicy is repair, and
applies a changed configuration file within seconds. A configuration that does not work is
rolled back once and not tried again until it changes.

It is meant to run as a service: systemctl enable --now aks-flex-node-agent

With --config-url-file it first fetches the configuration from a resource provider and stores
it in /var/lib/aks-flex-node, readable only by root; the URL is not stored. Then the machine
joins, and the service, if it is installed, is enabled and takes over. Exits with the result
of the join, also when the service has started it: 2 when the machine has joined and its pods
reach no Services (docs/how-to/prepare-a-cluster.md).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			url := flags.Changed("config-url") || flags.Changed("config-url-file")
			for _, name := range []string{"no-wait", "proxy", "ca-file", "ca-pin"} {
				if flags.Changed(name) && !url {
					return usageError("cannot use --%s without a configuration URL", name)
				}
			}
			switch {
			case url:
				return o.deliver(cmd, from)
			case os.Getenv(handOver) != "":
				return o.joinAndHandOver(cmd.Context())
			}
			return runAgent(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&from.file, "config-url-file", "",
		"first fetch the configuration from the URL in this `file`; - is standard input")
	cmd.Flags().StringVar(&from.url, "config-url", "",
		"the same with the `URL` itself, which the logs of sudo and shells keep; - is standard input")
	cmd.Flags().StringVar(&from.proxy, "proxy", "",
		"the `URL` of the proxy to fetch the configuration through (default HTTPS_PROXY, NO_PROXY)")
	cmd.Flags().StringVar(&from.caFile, "ca-file", "",
		"also trust the CAs in this PEM `file`, for the provider only, now and later")
	cmd.Flags().StringVar(&from.caPin, "ca-pin", "",
		"send the URL only to a server whose chain has a certificate, of a CA or of the server, with "+
			"this `pin` (sha256: and the SHA-256 of its public key); also trust that certificate")
	cmd.Flags().BoolVar(&from.noWait, "no-wait", false, "leave the join to the service")
	return cmd
}

func runAgent(ctx context.Context, o *options) error {
	if err := o.awaitConfiguration(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	in, err := o.firstInput(ctx, o.applied(ctx))
	if err != nil || ctx.Err() != nil {
		return err
	}
	a, err := o.agent(&in.Config)
	if err != nil {
		return err
	}
	claim, err := change.Acquire(a, saved.DaemonLockFile, "agent")
	if err != nil {
		return err
	}
	defer claim.Close()
	watchdog, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("cannot read the watchdog's interval: %w", err)
	}
	live, hints := service.NewLive(version), make(chan string)
	live.Attach(a)
	follows := service.Follow(ctx, a, in, live)
	running, renew := context.WithCancel(ctx)
	defer renew()
	if follows != nil {
		follows.Diagnose = diagnose.Answers(a, newMachine(a.Log))
		follows.Renew = renew
	}
	d := &daemon.Daemon{
		Node: &service.Watcher{
			Agent: a, Load: func() (change.Input, error) { return o.input(ctx) }, Follows: follows,
			Live: live,
		},
		Changed: o.changed(), Hints: hints, Watchdog: watchdog, Budget: service.Repairs(a), Log: a.Log,
		Told: live.Job,
		Notify: func(message string) {
			if _, err := sd.SdNotify(false, message); err != nil {
				a.Log.Debug("cannot notify systemd", "error", err)
			}
		},
	}
	d.Received, d.Deleted = follows.Signals()
	a.Beat, a.Proving = d.Beat, d.Proving
	end := watch(running, a, follows, live, hints)
	defer end()
	ended := d.Run(running)
	switch ended.Kind {
	case transition.Deleted:
		end()
		fmt.Fprintln(o.err, "the configuration of this node was deleted, and the machine was restored")
		if os.Getenv("AKS_FLEX_NODE_SERVICE") == "" {
			return nil
		}
		return o.replaceProcess(os.Args, os.Environ()) // which waits for another configuration
	case transition.Left:
		fmt.Fprintln(o.err, "this machine has been unbootstrapped; the agent has nothing more to do")
		return nil
	}
	if running.Err() != nil && ctx.Err() == nil {
		return errors.New("this process trusts no CA of the provider; the next one reads the system's " +
			"CAs again")
	}
	return ended.Err
}

// watch runs what sends hints to the daemon, and what answers for it, until end is called.
func watch(
	ctx context.Context, a *change.Agent, follows *service.Following, live *service.Live,
	hints chan<- string,
) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	hint := func(what string) {
		select {
		case hints <- what:
		case <-ctx.Done():
		}
	}
	var watching sync.WaitGroup
	watching.Go(func() { service.Deleted(ctx, a, hint) })
	watching.Go(func() { service.Changed(ctx, a, hint) })
	watching.Go(func() { follows.Run(ctx) })
	watching.Go(func() {
		if err := live.Tell(ctx, a); err != nil {
			a.Log.Error("the status cannot be asked for", "error", err)
		}
	})
	return func() {
		live.Close()
		stop()
		watching.Wait()
	}
}

// changed reports whether configuration file, policy or pause have changed since the last call.
func (o *options) changed() func() bool {
	stamps := func() [3]stamp {
		return [...]stamp{fileStamp(o.config), fileStamp(policy.File),
			fileStamp(saved.StateDir + "/" + saved.PauseFile)}
	}
	last := stamps()
	return func() bool {
		before := last
		last = stamps()
		return last != before
	}
}

// stamp identifies a file with its content, owner and mode; zero if it is missing. Another file has
// another inode number, and any change of this one another time of change (stat(2)).
type stamp [4]int64 // device, inode number, seconds and nanoseconds of the last change

func fileStamp(path string) (of stamp) {
	var s unix.Stat_t
	if unix.Stat(path, &s) == nil {
		of = stamp{int64(s.Dev), int64(s.Ino), s.Ctim.Sec, s.Ctim.Nsec}
	}
	return of
}

const waitPause = 5 * time.Second // the interval at which the service checks for a configuration

// awaitConfiguration makes a service without a configuration wait for one: from the provider
// (`agent --config-url`), or in the default file. A service that was killed while it gave the
// machine back does not wait, but finishes that.
func (o *options) awaitConfiguration(ctx context.Context) error {
	if os.Getenv("AKS_FLEX_NODE_SERVICE") == "" || o.config != defaultConfig {
		return nil
	}
	idle := o.idle(ctx)
	for {
		var t transition.Transition
		_, err := onlyReads().Records().Load(saved.TransitionFile, &t)
		leaving := err == nil && t.Kind == transition.Leave // which has removed the delivered file
		switch {
		case delivered(), leaving && !isNew(o.config):
			o.config = saved.BundleFile
			return nil
		case isNew(o.config), !idle("waiting for a configuration: aks-flex-node agent " +
			"--config-url-file FILE, or a new or changed " + defaultConfig):
			return nil
		}
	}
}

// isNew reports whether a file exists, and is not the one that existed when the machine was given
// back.
func isNew(file string) bool {
	a := onlyReads()
	data, err := a.ReadFile(file)
	former, unknown := a.Records().Read(saved.FormerFile)
	return err == nil && unknown == nil && state.Digest(string(data)) != string(former)
}

// firstInput returns the input to begin with. An existing node keeps running with an invalid
// configuration, which the daemon reports; on another machine the service waits for a valid one.
func (o *options) firstInput(ctx context.Context, before *config.Config) (change.Input, error) {
	idle := o.idle(ctx)
	for {
		file := fileStamp(o.config)
		read, err := o.read(before)
		in := o.inputOf(read)
		gone := o.config == saved.BundleFile && errors.Is(err, fs.ErrNotExist) // a leave has removed it
		if err != nil && (before != nil || gone) {
			in.Config = *cmp.Or(before, new(config.Defaults()))
			return in, nil
		}
		_, invalid := errors.AsType[config.Problems](err)
		if !invalid || os.Getenv("AKS_FLEX_NODE_SERVICE") == "" {
			return in, err
		}
		for fileStamp(o.config) == file {
			if !idle("waiting for a change of " + o.config + ", which cannot be used: " + err.Error()) {
				return in, nil
			}
		}
	}
}

// idle returns a pause of a service, which shows its reason and reports whether to continue.
func (o *options) idle(ctx context.Context) func(what string) bool {
	told := ""
	return func(what string) bool {
		message := sd.SdNotifyWatchdog
		if what != told {
			told = what
			fmt.Fprintln(o.err, what)
			status, _, _ := strings.Cut(what, "\n")
			message = sd.SdNotifyReady + "\nSTATUS=" + untrusted.Text(status).String()
		}
		if _, err := sd.SdNotify(false, message); err != nil {
			fmt.Fprintf(o.err, "warning: cannot notify systemd: %v\n", err)
		}
		return wait.Sleep(ctx, waitPause)
	}
}
