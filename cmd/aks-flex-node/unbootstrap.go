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
func (o *options) given(ctx context.Context) (*config.Config, error) {
	read, err := o.read(o.applied(ctx))
	if err == nil {
		return &read.Config, nil
	}
	if o.named {
		return nil, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(o.err, "warning: ignoring the configuration: %v\n", err)
	}
	return nil, nil
}

func unbootstrapCommand(o *options) *cobra.Command {
	how, yes := change.Leave{}, false
	cmd := &cobra.Command{
		Use:   "unbootstrap",
		Short: "Leave the cluster and restore the machine",
		Long: `Drains the node if possible, deletes the Node object, stops the services, restores the
machine to its previous state, and removes the agent's own records last. Files that other
programs have put into shared directories are kept; of files that other programs have changed
since, a copy is kept beside them (.aks-flex-node-kept). A configuration given with --config
selects the identity that is used with Azure. Exits with 1 and lists everything that could
not be undone; run it again to retry.

Shows what it will undo and asks for confirmation at a terminal; elsewhere it needs --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			given, err := o.given(ctx)
			if err != nil {
				return err
			}
			a, err := o.agent(cmp.Or(given, o.applied(ctx)))
			if err != nil {
				return err
			}
			if !yes {
				show := func() {
					report, err := change.PlanLeave(ctx, a, how)
					if err != nil {
						fmt.Fprintf(o.err, "warning: cannot determine what will be undone: %v\n", err)
					}
					writePlan(o.err, report)
				}
				if err := o.ask(ctx, a, "Leave the cluster and restore the machine?", show); err != nil {
					return err
				}
			}
			result, err := change.Unbootstrap(ctx, a, given, how)
			return o.show(result, err, func(w io.Writer) {
				if result.Changes > 0 {
					fmt.Fprintf(w, "The machine is restored (%s undone, %.1f s)\n",
						changes(result.Changes), result.Seconds)
				}
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&how.Force, "force", false,
		"continue with a lost or damaged ledger: remove only what has not changed since")
	cmd.Flags().BoolVar(&how.KeepArc, "keep-arc", false, "leave the machine registered with Azure Arc")
	cmd.Flags().DurationVar(&how.DrainTimeout, "drain-timeout", time.Minute,
		"how long to wait for pods to move to other nodes; 0 does not drain")
	cmd.Flags().BoolVar(&how.KeepUnmanaged, "keep-unmanaged-pods", false,
		"do not evict pods that no controller replaces")
	cmd.Flags().BoolVar(&how.KeepEmptyDir, "keep-emptydir-pods", false,
		"do not evict pods that have data in an emptyDir volume")
	return cmd
}
