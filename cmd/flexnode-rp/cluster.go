package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/prepare"
)

// errFound is the error for a cluster that lacks something, or would be changed; it is printed.
var errFound = errors.New("the cluster is not prepared")

type clusterFlags struct {
	kubeconfig, context, output string
	dryRun, yes, force          bool
}

func cluster() *cobra.Command {
	parent := &cobra.Command{
		Use: "cluster", Short: "Prepare a cluster for flex nodes, or undo that",
		Long: `Prepare a cluster for flex nodes, or undo that. It uses a kubeconfig of an
administrator of the cluster, as kubectl does, and never the credentials of the
provider; it needs no settings.`,
	}
	var f clusterFlags
	flags := parent.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with the kubeconfig (default "+
		"KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "`name` of the context of the kubeconfig (default the "+
		"current one)")
	flags.StringVarP(&f.output, "output", "o", "text", "output format: text or json")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the changes without making them")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	parent.AddCommand(prepareCluster(&f), unprepareCluster(&f))
	return parent
}

func prepareCluster(f *clusterFlags) *cobra.Command {
	var o prepare.Options
	cmd := &cobra.Command{
		Use: "prepare", Short: "Apply roles, admission policies and kube-proxy, and check the rest",
		Args: cobra.NoArgs,
		Long: `Apply the objects that flex nodes and their provider need in a cluster: roles, admission
policies and, unless another kube-proxy is scheduled on flex nodes, kube-proxy. The changes
are computed by the API server in a dry run, shown, and made after confirmation. A second
run with the same flags changes nothing. Objects that an earlier run has added and these
flags no longer ask for are removed; objects that existed before, or that another program
such as helm manages, are not.

Then it checks what it cannot add: the API server's address, DNS, pod subnets, routes
to pods and the path to kubelets. For each it reports what is missing and who can add it,
or how it will be tested if that needs a flex node. After a change, kube-proxy has a minute
to become ready on the flex nodes that have joined already.

The exit code is 0 when nothing is missing, 2 when something is, or when --dry-run
shows changes, and 1 when the command has failed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, o, func(c *prepare.Cluster, ctx context.Context) (prepare.Report, error) {
				return c.Plan(ctx, o, f.force)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Provider, "provider", prepare.ProviderUser,
		"`user` name of the provider in the cluster; for an Entra identity, its object id; for the "+
			"chart, system:serviceaccount:NAMESPACE:NAME; \"\" only if no provider serves the cluster")
	flags.StringVar(&o.Identities, "identities", "",
		"object `id` of the Entra group of machines that join with an identity for a certificate; "+
			"with --provider \"\", the cluster approves a member's request for any node")
	flags.BoolVar(&o.Leave, "leave", false,
		"let nodes delete their own Node, for clusters without a provider")
	flags.StringVar(&o.KubeProxy, "kube-proxy", "auto",
		"apply kube-proxy.yaml: auto, yes or no; auto applies it when nothing else serves Services on "+
			"flex nodes")
	flags.StringVar(&o.PodInterfaces, "pod-interfaces", "",
		"`prefix` of pod interfaces, if flex nodes use another plugin than the agent's bridge "+
			"(Calico: cali)")
	flags.StringVar(&o.Server, "server", "", "`URL` of the API server for machines (default that of "+
		"the kubeconfig)")
	flags.BoolVar(&f.force, "force-conflicts", false,
		"take over fields that other managers have set to other values")
	return cmd
}

func unprepareCluster(f *clusterFlags) *cobra.Command {
	return &cobra.Command{
		Use: "unprepare", Short: "Remove the objects that prepare has added", Args: cobra.NoArgs,
		Long: `Remove the objects that prepare has added, and only those: objects with the label
app.kubernetes.io/managed-by=flexnode-rp. The ConfigMap kube-system/flexnode-revoked
is kept, so that revoked machines stay revoked when the cluster is prepared again.
Nodes that have joined keep running; they cannot renew their certificates unless
another role allows it, and they lose Services when kube-proxy is removed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, prepare.Options{}, (*prepare.Cluster).PlanRemoval)
		},
	}
}

// run plans, shows the plan, asks, applies it, waits for its effects, and returns errFound if
// something is missing.
func (f *clusterFlags) run(
	cmd *cobra.Command, o prepare.Options,
	plan func(*prepare.Cluster, context.Context) (prepare.Report, error),
) error {
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("cannot use --output %s: it must be text or json", f.output)
	}
	c, err := prepare.Open(f.kubeconfig, f.context)
	if err != nil {
		return err
	}
	r, err := plan(c, cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.output == "text" {
		printChanges(out, r)
	}
	made := 0
	if !f.dryRun {
		made = r.Pending()
		if err := f.confirm(cmd, r); err != nil {
			return err
		}
		if err := c.Apply(cmd.Context(), &r, f.force); err != nil {
			return err
		}
		if err := c.Await(cmd.Context(), &r, o); err != nil {
			return err
		}
	}
	if f.output == "text" {
		printChecks(out, r, made)
	} else if err := printJSON(out, r); err != nil {
		return err
	}
	if missing := r.Missing(); missing > 0 || f.dryRun && r.Pending() > 0 {
		return fmt.Errorf("%w: %d changes not made, %d checks found something missing", errFound,
			r.Pending(), missing)
	}
	return nil
}

// confirm asks at the terminal whether to make the changes, if there are any.
func (f *clusterFlags) confirm(cmd *cobra.Command, r prepare.Report) error {
	if f.yes || r.Pending() == 0 {
		return nil
	}
	if in, ok := cmd.InOrStdin().(*os.File); ok {
		// Only a terminal has a window size.
		if _, err := unix.IoctlGetWinsize(int(in.Fd()), unix.TIOCGWINSZ); err != nil {
			return errors.New("cannot ask for confirmation without a terminal: use --yes or --dry-run")
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Make %d changes in %s? [y/N] ", r.Pending(), r.Server)
	typed := make(chan string, 1)
	go func() { // an interrupt ends the process, which may read until then
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // end of input means no
		typed <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-cmd.Context().Done():
		fmt.Fprintln(cmd.ErrOrStderr())
	case answer := <-typed:
		if answer == "y" || answer == "yes" {
			return nil
		}
	}
	return errors.New("nothing was changed")
}

func printChanges(out io.Writer, r prepare.Report) {
	fmt.Fprintf(out, "%s, Kubernetes %s\n\n", r.Server, r.Version)
	for _, c := range r.Changes {
		fmt.Fprintf(out, "%-9s  %s %s", c.Action, c.Kind, path.Join(c.Namespace, c.Name))
		if c.Manager != "" {
			fmt.Fprintf(out, "  (%s manages it)", c.Manager)
		}
		fmt.Fprintln(out)
		for _, field := range c.Fields {
			if c.Action == prepare.Conflict {
				fmt.Fprintf(out, "           %s: %s\n", field.Path, field.Is)
				continue
			}
			fmt.Fprintf(out, "           %s: %q -> %q\n", field.Path, field.Is, field.Want)
		}
	}
	if r.Pending() == 0 {
		fmt.Fprintln(out, "nothing to change")
	}
}

func printChecks(out io.Writer, r prepare.Report, made int) {
	if made > 0 {
		fmt.Fprintf(out, "%d changes made\n", made)
	}
	if len(r.Checks) == 0 {
		return
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		who := ""
		if c.Who != "" {
			who = " (" + c.Who + ")"
		}
		fmt.Fprintf(table, "%s\t%s\t%s%s\n", c.Status, c.Name, c.Message, who)
	}
	_ = table.Flush() // earlier writes to out succeeded
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
