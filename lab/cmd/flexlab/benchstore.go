package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab"
)

func (c *command) benchStore() *cobra.Command {
	b := lab.StoreBench{Nodes: 100_000, For: time.Hour, Replicas: 3, Compact: true, Say: c.lab.Say}
	members := 3
	cmd := &cobra.Command{
		Use: "store", Short: "Measure the size of the provider's store", Args: cobra.NoArgs,
		Long: `Writes what a fleet writes to the provider's store in an hour, as fast as the store
accepts it, with compactions as the provider does them: first to an embedded etcd,
then to one with several members. It needs no lab and no network.

  each minute       1 % of the nodes report a new status, owners change 0.1 %
  each 5 minutes    every replica writes the nodes' last-seen times: 64 rows

The output has the size of the largest member's file and the part in use: after each
five minutes, at the end after a full compaction, and after a defragmentation. The
last lines extrapolate to a day.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := reportStore("embedded", b, func() (lab.StoreSizes, error) {
				return b.Embedded(ctx)
			}); err != nil || members == 0 {
				return err
			}
			return reportStore(fmt.Sprintf("members=%d", members), b,
				func() (lab.StoreSizes, error) { return b.Members(ctx, members) })
		},
	}
	cmd.Flags().IntVar(&b.Nodes, "nodes", b.Nodes, "number of nodes")
	cmd.Flags().DurationVar(&b.For, "for", b.For, "period to simulate")
	cmd.Flags().IntVar(&b.Replicas, "replicas", b.Replicas, "number of replicas of the provider")
	cmd.Flags().BoolVar(&b.Compact, "compact", b.Compact, "compact as the provider does")
	cmd.Flags().IntVar(&members, "members", members, "members of the second etcd; 0 for none")
	return cmd
}

// reportStore measures and prints the results.
func reportStore(
	name string, b lab.StoreBench, measure func() (lab.StoreSizes, error),
) error {
	began := time.Now()
	s, err := measure()
	if err != nil {
		return err
	}
	mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
	days := float64(24*time.Hour) / float64(b.For)
	fmt.Printf("store %s nodes=%d for=%s commits=%d written_mib=%.0f filled_mib=%.0f peak_mib=%.0f "+
		"compacted_in_use_mib=%.0f compacted_file_mib=%.0f defragmented_mib=%.0f took_s=%.0f\n",
		name, b.Nodes, b.For, s.Commits, mib(s.Written), mib(s.Filled), mib(s.Peak),
		mib(s.Compacted[0]), mib(s.Compacted[1]), mib(s.Defragmented[1]), time.Since(began).Seconds())
	fmt.Printf("store %s day: history_without_compaction_gib=%.1f written_gib=%.1f "+
		"file_with_compaction_mib=%.0f\n", name, mib(s.Grown)*days/1024, mib(s.Written)*days/1024,
		mib(s.Peak))
	return nil
}
