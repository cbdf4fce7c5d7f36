package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/service"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

func storage(settings *string) *cobra.Command {
	parent := &cobra.Command{
		Use: "store", Short: "Show how full the store is, and free space in it",
		Long: `Show how full the store is, and free space in it. The provider may run: an etcd in
its process is reached through the socket in its data directory.

The provider compacts the store by itself every five minutes, so none of this is
needed in normal operation. A store that has reached its quota refuses writes until
an operator runs these commands, in this order:

  flexnode-rp store status        show which member is full, and why
  flexnode-rp store compact       discard the history of every row
  flexnode-rp store defragment    return the free space to the disk
  flexnode-rp store disarm        accept writes again

If "in use" is near the quota after compact, the rows themselves need the space:
give etcd a larger quota (at most 8 GiB), or delete what is not needed. From 90 % in
use the provider refuses everything that makes rows larger, so that nodes and clusters
can be deleted through the API. If even that is refused, use "store delete-cluster".
Machines still poll and join as far as that needs no write.`,
	}
	add := func(use, short, long string, work func(context.Context, io.Writer, *store.Etcd) error) {
		parent.AddCommand(&cobra.Command{
			Use: use, Short: short, Long: long, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withEtcd(*settings, func(_ service.Settings, e *store.Etcd) error {
					return work(cmd.Context(), cmd.OutOrStdout(), e)
				})
			},
		})
	}
	add("status", "Show each member: size, quota, alarms",
		`Show each member of the store: the size of its file, how much of it is in use, the
quota, and the alarms. It writes nothing. The exit code is 1 when a member does not
answer, has no leader or raises an alarm.`, storeStatus)
	add("compact", "Discard the history of all rows",
		`Discard the history of all rows and free its space within the files; the rows
themselves are kept. The files do not shrink: run "store defragment" for that.
Replicas that are behind read everything again.`, storeCompact)
	add("defragment", "Return free space to the disk, member by member",
		`Rewrite each member's file without its free space, one member after the other, the
leader last. A member does not answer while its file is written: some seconds for
each GiB. With three members the others answer meanwhile; with one, as in the
provider's own process, the provider does not answer either.`, storeDefragment)
	add("disarm", "Accept writes again in a store that was full",
		`Clear the alarm of a store that was full, after compact and defragment, so that it
accepts writes again. A store that is still full raises the alarm at the next write.
Alarms about damaged data are not cleared: replace that member, or restore a backup.`, storeDisarm)
	parent.AddCommand(deleteCluster(settings))
	return parent
}

func deleteCluster(settings *string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete-cluster KEY --release", Short: "Delete a cluster's rows when the API cannot",
		Long: `Delete the rows of a cluster and of its nodes when the API cannot: a store that
refuses every other write still accepts deletions. KEY is the subscription, the resource
group and the name of the cluster, as "SUBSCRIPTION/GROUP/NAME". The machines keep
running, unmanaged, as after DELETE with nodes=release. Configuration URLs of the
provider stop working. Nothing is deleted in blob storage or revoked in the cluster:
URLs and bootstrap tokens there expire. Compact and defragment afterwards.`,
		Args: cobra.ExactArgs(1),
	}
	release := cmd.Flags().Bool("release", false, "keep the machines running, unmanaged; required")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := arm.Fold(args[0])
		if !*release || strings.Count(key, "/") != 2 {
			return errors.New("SUBSCRIPTION/GROUP/NAME and --release are required: the machines keep " +
				"running, unmanaged")
		}
		return withEtcd(*settings, func(_ service.Settings, e *store.Etcd) error {
			deleted, err := store.New(e).ReleaseCluster(cmd.Context(), key)
			switch {
			case err != nil:
				return fmt.Errorf("cannot delete all rows of %s; run this again: %w", key, err)
			case deleted == 0:
				return fmt.Errorf("cannot delete %s: no rows found", key)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s deleted: %d rows\n", key, deleted)
			return nil
		})
	}
	return cmd
}

// withEtcd runs work beside a running provider: it reaches an embedded store through the socket in
// its directory.
func withEtcd(settings string, work func(service.Settings, *store.Etcd) error) error {
	s, err := service.Load(settings)
	if err != nil {
		return err
	}
	e, err := store.Dial(s.Endpoints())
	if err != nil {
		return err
	}
	return errors.Join(work(s, e), e.Close())
}

func storeStatus(ctx context.Context, out io.Writer, e *store.Etcd) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MEMBER\tVERSION\tROLE\tREVISION\tSIZE\tIN USE\tQUOTA\tSTATE")
	bad := 0
	for _, m := range e.Members(ctx) {
		state := stateOf(m)
		if state != "ok" {
			bad++
		}
		if m.Err != nil {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t-\t%s\n", m.Endpoint, state)
			continue
		}
		role := "follower"
		if m.Leader {
			role = "leader"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", m.Endpoint, m.Version, role,
			m.Revision, mib(m.Size), mib(m.InUse), mib(m.Quota), state)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d members of the store are not healthy; see "+
			"docs/how-to/troubleshoot-a-provider.md", bad)
	}
	return nil
}

func stateOf(m store.EtcdMember) string {
	switch {
	case m.Err != nil:
		return "does not answer: " + m.Err.Error()
	case m.Corrupt:
		return "data is damaged: replace the member, or restore a backup"
	case m.Full:
		return "full: refuses writes"
	case !m.HasLeader:
		return "no leader: most members are down"
	}
	return "ok"
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func storeCompact(ctx context.Context, out io.Writer, e *store.Etcd) error {
	revision, err := e.CompactAll(ctx)
	if err == nil {
		fmt.Fprintf(out, "the history before revision %d is discarded\n", revision)
	}
	return err
}

func storeDefragment(ctx context.Context, out io.Writer, e *store.Etcd) error {
	var before int64
	return e.Defragment(ctx, func(m store.EtcdMember, done bool) {
		if !done {
			before = m.Size
			fmt.Fprintf(out, "rewriting the file of %s (%s); the member does not answer meanwhile ...\n",
				m.Endpoint, mib(m.Size))
			return
		}
		fmt.Fprintf(out, "%s done: %s, %s less\n", m.Endpoint, mib(m.Size), mib(before-m.Size))
	})
}

func storeDisarm(ctx context.Context, out io.Writer, e *store.Etcd) error {
	err := e.Disarm(ctx)
	if err == nil {
		fmt.Fprintln(out, "the store accepts writes")
	}
	return err
}
