package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/service"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

var errUnusable = errors.New("the backup cannot be used; see \"problems\"")

// exitCode returns 2 for problems of the object of a command: an unusable backup, or a cluster that
// lacks something.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUnusable), errors.Is(err, errFound):
		return 2
	}
	return 1
}

func backup(settings *string) *cobra.Command {
	verify := false
	c := &cobra.Command{
		Use: "backup FILE", Short: "Write a snapshot of the store of a running provider, or verify one",
		Args: cobra.ExactArgs(1),
		Long: `Write a snapshot of the store of a running provider to a new file. Secrets in it
are sealed: they cannot be read without the keys file, which must be kept elsewhere.
A provider that is restored from the snapshot needs that file too.

With --verify nothing is written: FILE is restored into a temporary directory
(below TMPDIR; it needs as much space as the file) and read completely: the
checksum, the version of the rows, each row, and each secret, with the current
keys. The provider need not run. The result is printed as JSON. The exit code is
0 for a backup that a provider can be restored from, 2 for one that cannot be used
(see "problems"), and 1 when the backup could not be verified.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := service.Load(*settings)
			if err != nil {
				return err
			}
			if verify {
				return verifyBackup(cmd, args[0], s.KeysFile)
			}
			if err = store.Backup(cmd.Context(), s.Endpoints(), args[0]); err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "backup written to", args[0])
			}
			return err
		},
	}
	c.Flags().BoolVar(&verify, "verify", false, "read FILE completely and report its contents")
	return c
}

func verifyBackup(cmd *cobra.Command, path, keysFile string) error {
	content, err := service.VerifyBackup(cmd.Context(), path, keysFile)
	if err != nil {
		return err
	}
	if err := printJSON(cmd.OutOrStdout(), content); err != nil {
		return err
	}
	if !content.Valid {
		return fmt.Errorf("%s: %w", path, errUnusable)
	}
	return nil
}

func epoch(settings *string) *cobra.Command {
	parent := &cobra.Command{
		Use: "epoch", Short: "Record in the store that it was restored from a backup",
		Long: `Record in the store that it was restored from a backup. "flexnode-rp restore" does that
itself; an external etcd does not know that it was restored:

  etcdutl snapshot restore ...    on its members, all replicas stopped
  flexnode-rp epoch raise         with the members running, no replica
  flexnode-rp serve               start the replicas`,
	}
	parent.AddCommand(&cobra.Command{
		Use: "raise", Short: "Begin a new epoch", Args: cobra.NoArgs,
		Long: `Begin a new epoch: replicas that start from now on revoke the credentials that are
unused according to the backup, since they may have been used after it. Raising the
epoch more often than needed does no other harm.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStore(cmd.Context(), *settings, func(st *store.Store, _ seal.Ring) error {
				now, err := service.RaiseEpoch(cmd.Context(), st)
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "epoch %d has begun; start or restart every replica\n", now)
				}
				return err
			})
		},
	})
	return parent
}
