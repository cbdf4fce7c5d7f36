package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab"
)

// chaos returns the command that injects faults into a provider with several replicas, and into
// their store, under load.
func (c *command) chaos() *cobra.Command {
	run := lab.Chaos{For: 10 * time.Minute, Seed: rand.Uint64N(1_000_000)}
	cmd := &cobra.Command{
		Use: "chaos", Short: "Harm the provider's replicas and store while it is worked on",
		Args: cobra.NoArgs,
		Long: `Starts three replicas of the resource provider on an etcd of three members, and two
clusters. Clients write, read, poll, list and delete nodes through all replicas, have
URLs made and fetch what they hand out. Meanwhile replicas and members are killed,
paused and parted from each other, members' disks stall, a member loses its disk and is
replaced, leases of replicas end early, the store is compacted, the provider's client
certificates are replaced, Nodes come and go, and the second cluster is deleted with
its nodes and registered again. The owner of 100 further nodes, whose agents are
simulated, wants one version after the other for all of them: one breaks every node,
one a node in twenty, and both are reported as applied.

Then it is judged whether one order explains every answer, node by node: values,
versions that only go up, which URL is alive, and the last reads, so that no
acknowledged write is lost. Within 30 seconds of the last harm every reconciler must
have caught up: no Secret, bundle, row or URL without what it belongs to, no Ready
that is not so, no replica behind. Of the 100 nodes never more than the budget may have
been away at once, and no version may have broken more of them than the rollout policy
allows.

The line that is printed has the seed: with --seed the same is done again, in the same
order, though not at the same moments.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.lab.Replicas, c.lab.Members = 3, 3
			if err := c.start(cmd.Context(), 0); err != nil {
				return err
			}
			c.lab.Say("chaos for %s, seed %d", run.For, run.Seed)
			got, err := c.lab.RunChaos(cmd.Context(), run)
			if err != nil {
				return fmt.Errorf("seed %d: %w", run.Seed, err)
			}
			fmt.Printf("chaos seed=%d %s\n", run.Seed, got)
			if !got.Linearizable || len(got.Wrong) > 0 {
				return errors.New("the provider is not as it must be:\n" + strings.Join(got.Wrong, "\n"))
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&run.For, "for", run.For, "for how long")
	cmd.Flags().Uint64Var(&run.Seed, "seed", run.Seed, "what decides on what is done")
	return cmd
}
