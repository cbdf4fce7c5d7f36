package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/service"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

func epoch(settings *string) *cobra.Command {
	parent := &cobra.Command{
		Use: "epoch", Short: "Tell the store that it was restored from a backup",
		Long: `Tell the store that it was restored from a backup. "flexnode-rp restore" does that by
itself; an etcd outside of the provider does not know that it was restored:

  etcdutl snapshot restore ...    on its members, all replicas stopped
  flexnode-rp epoch raise         the members run, no replica does
  flexnode-rp serve               start the replicas`,
	}
	parent.AddCommand(&cobra.Command{
		Use: "raise", Short: "Begin a new epoch", Args: cobra.NoArgs,
		Long: `Begin a new epoch: the replicas that start from now on revoke credentials that the
backup says to be usable, since they may have been used. Raising it more often than
needed does no other harm.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd.Context(), *settings, func(st *store.Store, _ seal.Ring) error {
				now, err := service.RaiseEpoch(cmd.Context(), st)
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "epoch %d has begun; (re)start every replica\n", now)
				}
				return err
			})
		},
	})
	return parent
}
