package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/redact"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Set by the linker.
var version, commit = "dev", "unknown"

const defaultConfig = saved.ConfigFile

type options struct {
	// Results go to out, progress and errors to err: stdout and stderr without control characters.
	out, err       io.Writer
	stdout, stderr *os.File
	config, output string
	begun          bool
	named          bool     // the user has named the configuration
	changes        bool     // the command changes the machine, and so writes a log
	journal        *journal // the log, once its path is known; secrets are kept out of it
	secrets        redact.Redactor
	opened         []func() // closed by end
}

// input reads the current configuration. Settings that it leaves open keep their resolved values.
func (o *options) input(ctx context.Context) (change.Input, error) {
	read, err := o.read(o.applied(ctx))
	return o.inputOf(read), err
}

func (o *options) inputOf(read config.Loaded) change.Input {
	in := change.Input{Config: read.Config, Document: read.Document, Origin: "file"}
	if o.config == saved.BundleFile {
		in.Origin, in.Resource = "url", read.Resource
	}
	return in
}

// applied returns the configuration of this machine's node; nil if none, or if it is unreadable.
func (o *options) applied(ctx context.Context) *config.Config {
	c, err := inspect.Applied(ctx, onlyReads())
	if err != nil {
		return nil
	}
	return c
}

// onlyReads returns access to the machine that neither logs nor changes anything.
func onlyReads() *inspect.Env {
	return &inspect.Env{Reader: host.New("", slog.New(slog.DiscardHandler))}
}

func asRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("cannot run without root: start it with sudo")
	}
	return nil
}

// read reads the configuration with the user's rights, and shows its warnings.
func (o *options) read(before *config.Config) (config.Loaded, error) {
	read, err := config.Load(o.config, before)
	o.warn(read)
	o.secrets.Know(read.Config.Secrets()...)
	return read, err
}

func (o *options) warn(read config.Loaded) {
	for _, w := range read.Warnings {
		fmt.Fprintf(o.err, "warning: %s\n", w)
	}
}

// print writes a result below the progress: with text, or as JSON.
func (o *options) print(v any, text func(io.Writer)) error {
	o.end()
	if o.output != "json" {
		text(o.out)
		return nil
	}
	enc := json.NewEncoder(o.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// show prints the result of a command, unless it has failed.
func (o *options) show(v any, err error, text func(io.Writer)) error {
	if err != nil {
		return err
	}
	return o.print(v, text)
}

func newRoot(o *options) *cobra.Command {
	changing := []*cobra.Command{
		agentCommand(o), bootstrapCommand(o), rollbackCommand(o), unbootstrapCommand(o),
		pauseCommand(o), resumeCommand(o),
	}
	looking := []*cobra.Command{ // commands that only read, also as root
		planCommand(o), driftCommand(o), statusCommand(o), historyCommand(o), diffCommand(o),
		tokenCommand(o), imageCredentialCommand(o), supportBundleCommand(o),
	}
	follow := followCommand(o)
	root := &cobra.Command{
		Use:   "aks-flex-node",
		Short: "Make any Ubuntu machine a node of an AKS cluster",
		Long: `aks-flex-node makes a Linux machine a worker node of an AKS cluster, keeps it as
configured, and restores the machine when it leaves.

  aks-flex-node plan         show what would be done, without doing it
  aks-flex-node agent        join the cluster and keep the node as configured
  aks-flex-node status       show the state of the node
  aks-flex-node doctor       find out what is wrong, the most likely cause first
  aks-flex-node rollback     go back to the previous generation
  aks-flex-node unbootstrap  leave the cluster and restore the machine

Exit codes of all commands:

  0  success, and nothing was found
  1  failure
  2  plan, drift, diff: something differs; status, doctor, endpoints: something is wrong;
     agent, bootstrap: the machine has joined, and its pods reach no Services
  3  the configuration or the command line is wrong
  4  this machine is not a node`,
		Version: version, SilenceUsage: true, SilenceErrors: true, RunE: showHelp,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			o.begun = true
			if o.output != "text" && o.output != "json" {
				return usageError("cannot use --output %s: it must be text or json", o.output)
			}
			if o.named = cmd.Flags().Changed("config"); !o.named && delivered() {
				o.config = saved.BundleFile
			}
			repairs, err := cmd.Flags().GetBool("repair")
			o.changes = err == nil && repairs || slices.Contains(changing, cmd) || cmd.Parent() == follow
			if o.changes || slices.Contains(looking, cmd) {
				return asRoot()
			}
			return nil
		},
	}
	root.PersistentFlags().StringVar(&o.config, "config", defaultConfig,
		"configuration `file`, unless the configuration came from a URL")
	root.SetGlobalNormalizationFunc(spellings)
	root.PersistentFlags().StringVarP(&o.output, "output", "o", "text", "output format: text or json")
	root.AddCommand(changing...)
	root.AddCommand(looking...)
	root.AddCommand(configCommand(o), versionCommand(o), doctorCommand(o), endpointsCommand(o),
		policyCommand(o), follow)
	for _, cmd := range root.Commands() {
		if cmd.Args == nil {
			cmd.Args = cobra.NoArgs
		}
	}
	return root
}

// spellings accepts the other documented names of flags.
func spellings[Flags any, Name ~string](_ Flags, name string) Name {
	if name == "config-file" {
		name = "config"
	}
	return Name(name)
}

func bootstrapCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "bootstrap",
		Short: "Join the cluster and exit when the Node is Ready",
		Long: `Makes this machine the node that the configuration describes, and exits when the node
has passed the health gate. It is idempotent: on a node that is as configured it is a no-op,
an interrupted run is finished, and a changed configuration is applied. A new configuration
that does not work is rolled back. Exits with 2 when the machine has joined and its pods reach
no Services (docs/how-to/prepare-a-cluster.md).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, result, err := o.join(cmd.Context(), change.Bootstrap)
			return o.printResult(result, err, "Node %s is Ready (%s, %.1f s)\n")
		},
	}
}

// join makes this machine the node, and checks the Services of one that was not the node before,
// even if another run had begun to join. The agent is nil if there is no configuration for it.
func (o *options) join(
	ctx context.Context,
	bootstrap func(context.Context, *change.Agent, change.Input) (change.Result, error),
) (a *change.Agent, result change.Result, err error) {
	joined, unknown := inspect.HasJoined(ctx, onlyReads())
	in, err := o.input(ctx)
	if err != nil {
		return nil, result, err
	}
	if a, err = o.agent(&in.Config); err != nil {
		return nil, result, err
	}
	result, err = bootstrap(ctx, a, in)
	if err == nil && unknown == nil && !joined {
		result.Conditions, err = change.Unserved(ctx, a)
	}
	return a, result, err
}

// printResult prints how a command has changed the node, unless it has failed. It returns errFound
// if a joined node has failed conditions.
func (o *options) printResult(r change.Result, err error, format string) error {
	return found(o.show(r, err, func(w io.Writer) {
		fmt.Fprintf(w, format, r.NodeName, changes(r.Changes), r.Seconds)
		for _, c := range r.Conditions {
			fmt.Fprintf(w, "%s is %s (%s): %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}), len(r.Conditions) > 0)
}

// found returns errFound if something is set, unless printing it has failed.
func found(err error, something bool) error {
	if err == nil && something {
		return errFound
	}
	return err
}

func changes(n int) string {
	if n == 0 {
		return "nothing to do"
	}
	return progress.Plural(n, "change")
}

func planCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "Show exactly what bootstrap would do, without doing it",
		Long: `Prints every change that bootstrap would make to this machine, what it would download,
and from which hosts. Nothing is written. Exits with 0 when there is nothing to do and with 2
when there is.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			in, err := o.input(ctx)
			if err != nil {
				return err
			}
			report, err := change.Plan(ctx, a, in)
			return o.differs(report, err, writePlan, "nothing to do")
		}),
	}
}

func (o *options) with(
	run func(ctx context.Context, a *change.Agent, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		var c *config.Config // for the log, which a command that only reads does not write
		if o.changes {
			c = o.applied(cmd.Context())
		}
		a, err := o.agent(c)
		if err != nil {
			return err
		}
		return run(cmd.Context(), a, args)
	}
}

func (o *options) differs(
	r inspect.Report, err error, text func(io.Writer, inspect.Report), none string,
) error {
	if r.Changes == nil {
		r.Changes = []state.Line{}
	}
	return found(o.show(r, err, func(w io.Writer) {
		if text(w, r); len(r.Changes) == 0 {
			fmt.Fprintln(w, none)
		}
	}), len(r.Changes) > 0)
}

func driftCommand(o *options) *cobra.Command {
	repair := false
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Compare this machine with the applied configuration",
		Long: `Prints everything on this machine that differs from the applied configuration, with the
expected value and the value that was found. The Node object is included when the API server
answers. Exits with 2 when there is drift. With --repair, exactly these differences are
repaired, and the exit code is 0 once they are.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			if !repair {
				report, err := inspect.Drift(ctx, &a.Env)
				return o.differs(report, err, writeDrift, "no drift")
			}
			report, err := change.Repair(ctx, a, nil)
			if err = o.differs(report, err, writeDrift, "no drift"); errors.Is(err, errFound) {
				return nil
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "repair the drift")
	return cmd
}

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of the node: Ready, services, drift",
		Long: `Shows the state of the node: its conditions, services, the agent's service, the change
under way, rejected configurations, and drift. Exits with 2 when something is wrong, and with
4 when this machine is not a node; the JSON output then has only the state and a change under way.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			status, err := inspect.ReadStatus(ctx, &a.Env)
			if o.output == "json" && errors.Is(err, inspect.ErrNoNode) {
				return errors.Join(err, o.print(inspect.Unjoined{
					State: status.State, Transition: status.Transition}, nil))
			}
			err = o.show(status, err, func(w io.Writer) { writeStatus(w, status) })
			return found(err, !status.Healthy())
		}),
	}
}

func tokenCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Print a token of this node's Azure identity for kubelet",
		Long: `Prints an ExecCredential (client.authentication.k8s.io) with a token for the API server.
kubelet and kubeconfigs call it. Tokens are cached in /run/aks-flex-node, readable only by
root. One process at a time renews them, before they expire; while the issuer is down, a
cached token is used until it expires.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			token, err := inspect.Token(ctx, &a.Env)
			if err != nil {
				return err
			}
			return identity.WriteExec(o.out, token, os.Getenv("KUBERNETES_EXEC_INFO"))
		}),
	}
}

func imageCredentialCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "image-credential",
		Short: "Print a registry credential of this node's Azure identity for kubelet",
		Long: `Reads a CredentialProviderRequest (credentialprovider.kubelet.k8s.io) and prints the
credential for the registry of the image, obtained with the identity of this node. kubelet
calls it for the registries in azure.registries.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			images, err := inspect.Images(ctx, &a.Env)
			if err != nil {
				return err
			}
			return images.Answer(ctx, os.Stdin, o.out)
		}),
	}
}

func configCommand(o *options) *cobra.Command {
	return group("config", "Work with the configuration file", &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration file and print every problem",
		Long: `Checks the configuration file and prints every problem at once, each with its path.
Exits with 3 when there is one, or with 1 when others than root may write the file.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.validate(cmd.Context()) },
	})
}

func group(use, short string, sub *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: showHelp}
	sub.Args = cobra.NoArgs
	cmd.AddCommand(sub)
	return cmd
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

type validation struct {
	Valid    bool             `json:"valid"`
	Problems config.Problems  `json:"problems"`
	Warnings []config.Warning `json:"warnings,omitempty"`
	Config   *config.Config   `json:"config,omitempty"`
}

func (o *options) validate(ctx context.Context) error {
	read, err := config.Load(o.config, o.applied(ctx))
	if o.output != "json" {
		o.warn(read)
		if err == nil {
			fmt.Fprintf(o.out, "%s is valid\n", o.config)
		}
		return err
	}
	v := validation{Valid: err == nil, Problems: config.AsProblems(err), Warnings: read.Warnings}
	if err == nil {
		v.Config = &read.Config
	}
	return cmp.Or(o.print(v, nil), err)
}

func versionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{
				"version": version, "commit": commit, "go": runtime.Version(),
				"platform": runtime.GOOS + "/" + runtime.GOARCH,
			}
			return o.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "aks-flex-node %s (%s, %s, %s)\n",
					v["version"], v["commit"], v["go"], v["platform"])
			})
		},
	}
}
