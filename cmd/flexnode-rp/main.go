// Command flexnode-rp is the resource provider: flexNodeConfig as an ARM resource.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/rp/service"
)

// version and commit are set by the linker.
var version, commit = "dev", "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root, out := newRoot(), &results{Writer: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err = cmp.Or(err, out.err); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(exitCode(err))
	}
}

// results writes a command's output, and keeps the first error: a command whose output is lost, as
// on a full disk, has failed.
type results struct {
	io.Writer
	err error
}

func (r *results) Write(data []byte) (int, error) {
	n, err := r.Writer.Write(data)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("cannot write the result: %w", err)
	}
	return n, err
}

func newRoot() *cobra.Command {
	settings := ""
	root := &cobra.Command{
		Use:   "flexnode-rp",
		Short: "The resource provider of AKS Flex Node",
		Long: `flexnode-rp serves flexNodeConfig as an ARM resource: it generates complete node
configurations, hands each out to one machine through an expiring URL, and answers
polling agents. It stores its data in an embedded etcd, or in an external etcd cluster that
several replicas share.

  flexnode-rp keys init /etc/flexnode-rp/keys.json       once, before the first start
  flexnode-rp cluster prepare                            once for each cluster
  flexnode-rp check --settings /etc/flexnode-rp/settings.json
  flexnode-rp serve --settings /etc/flexnode-rp/settings.json

docs/reference/provider-settings.md describes the settings.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&settings, "settings", "/etc/flexnode-rp/settings.json",
		"JSON `file` with the settings")
	root.AddCommand(serve(&settings), check(&settings), backup(&settings), restore(&settings),
		keys(&settings), storage(&settings), epoch(&settings), ready(), cluster(), &cobra.Command{
			Use: "version", Short: "Print the version", Args: cobra.NoArgs,
			Run: func(cmd *cobra.Command, _ []string) {
				fmt.Fprintf(cmd.OutOrStdout(), "flexnode-rp %s (commit %s, %s)\n", version, commit,
					runtime.Version())
			},
		})
	for _, group := range root.Commands() {
		if group.HasSubCommands() { // cobra would print the help for a misspelt command, and succeed
			group.Args = cobra.NoArgs
			group.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

func serve(settings *string) *cobra.Command {
	role := ""
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve until SIGTERM, then drain", Args: cobra.NoArgs,
		Long: `Serve until SIGTERM, then drain. With an external etcd the work can be divided: a
front answers callers and machines and does no work in clusters; a controller works in
the clusters that it owns and answers only requests for health and metrics.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := service.Load(*settings)
			if err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				// A collection reads the index of all nodes; a request allocates little beside that.
				debug.SetGCPercent(200)
			}
			program := service.Program{Version: version, Role: service.Role(role), Notify: notifySystemd}
			return service.Run(cmd.Context(), s, program, os.Stdout)
		},
	}
	cmd.Flags().StringVar(&role, "role", string(service.All), "front, controller or all")
	return cmd
}

// notifySystemd reports the state of the program to systemd, if that has started it.
func notifySystemd(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		fmt.Fprintln(os.Stderr, "cannot notify systemd:", err)
	}
}

func check(settings *string) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the settings without starting the provider", Args: cobra.NoArgs,
		Long: `Check the settings, and the certificates, keys, secrets and kubeconfigs that they
name, without starting the provider. keysFile is not read: systemd may supply it to the
service only. Run it as the user of the service.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := service.Load(*settings)
			if err != nil {
				return err
			}
			err = s.CheckFiles()
			for _, allowed := range s.Allowed() {
				fmt.Fprintln(cmd.OutOrStdout(), "allowed:", allowed)
			}
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "the settings are valid")
			}
			return err
		},
	}
}

func restore(settings *string) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Create a data directory from a snapshot; the provider must not run",
		Args:  cobra.ExactArgs(1),
		Long: `Create a data directory from a snapshot. The directory must not hold a store yet, and
the provider must not run. The first start on it begins a new epoch: credentials that are
unused according to the backup are revoked, since they may have been used after it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := service.Load(*settings)
			if err != nil {
				return err
			}
			if s.DataDir == "" {
				return errors.New("cannot restore an external etcd: stop all replicas, use `etcdutl snapshot " +
					"restore` on its members, then `flexnode-rp epoch raise`")
			}
			if err = service.Restore(args[0], s.DataDir); err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "restored to", s.DataDir)
			}
			return err
		},
	}
}
