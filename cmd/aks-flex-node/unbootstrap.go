package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// given returns the configuration that determines the access to Azure. If one was named, it must be
// readable; without the default one, the node's own is used.
func (o *options) given(cmd *cobra.Command) (*config.Config, error) {
	read, err := o.read(o.applied(cmd.Context()))
	if err == nil {
		return &read.Config, nil
	}
	if cmd.Flags().Changed("config") {
		return nil, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(o.err, "warning: the configuration is not used: %v\n", err)
	}
	return nil, nil
}

func unbootstrapCommand(o *options) *cobra.Command {
	how, yes := change.Leave{}, false
	cmd := &cobra.Command{
		Use:   "unbootstrap",
		Short: "Leave the cluster and give the machine back as it was",
		Long: `Moves this node's pods to other nodes if it can, deletes the Node object, stops the
services, restores everything as it was before, and removes the agent's own records
last. What others have put into shared directories is left; of what others have
changed since, a copy is kept beside it (.aks-flex-node-kept). A configuration given
with --config decides who speaks to Azure. Exits with 1 and lists what could not be
undone; running it again tries that again.

Shows what it will undo and asks, at a terminal; elsewhere it needs --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given, err := o.given(cmd)
			if err != nil {
				return err
			}
			a, done, err := o.agent(cmp.Or(given, o.applied(cmd.Context())))
			if err != nil {
				return err
			}
			defer done()
			if !yes {
				err := o.ask(cmd.Context(), a, "Leave the cluster and give the machine back?", func() {
					o.showLeave(cmd.Context(), a, how)
				})
				if err != nil {
					return err
				}
			}
			result, err := change.Unbootstrap(cmd.Context(), a, given, how)
			done()
			if err != nil {
				return err
			}
			return o.print(result, func(w io.Writer) {
				if result.Changes > 0 {
					fmt.Fprintf(w, "The machine is as it was before (%s undone, %.1f s)\n",
						changes(result.Changes), result.Seconds)
				}
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&how.Force, "force", false,
		"go on with a lost or damaged ledger: remove only what is as aks-flex-node made it")
	cmd.Flags().BoolVar(&how.KeepArc, "keep-arc", false, "leave the machine registered with Azure Arc")
	cmd.Flags().DurationVar(&how.DrainTimeout, "drain-timeout", time.Minute,
		"how long to wait for pods to move to other nodes; 0 does not drain")
	cmd.Flags().BoolVar(&how.KeepUnmanaged, "keep-unmanaged-pods", false,
		"do not evict pods that no controller replaces")
	cmd.Flags().BoolVar(&how.KeepEmptyDir, "keep-emptydir-pods", false,
		"do not evict pods that have data in an emptyDir volume")
	return cmd
}

func (o *options) showLeave(ctx context.Context, a *change.Agent, how change.Leave) {
	report, err := change.PlanLeave(ctx, a, how)
	if err != nil {
		fmt.Fprintf(o.err, "warning: cannot tell what will be undone: %v\n", err)
	}
	writePlan(o.err, report)
}
