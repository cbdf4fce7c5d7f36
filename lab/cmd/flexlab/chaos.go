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
		Use: "chaos", Short: "Inject faults into the provider and its store under load",
		Args: cobra.NoArgs,
		Long: `Starts three replicas of the resource provider with an etcd of three members, and two
clusters. Clients write, read, poll, list and delete nodes through all replicas, and
request and fetch configuration URLs. Meanwhile replicas and members are killed, paused
and partitioned, members' disks stall, a member loses its disk and is replaced, leases
of replicas are revoked, the store is compacted, the provider's client certificates are
replaced, Nodes are created and deleted, and the second cluster is deleted with its
nodes and registered again. The owner of 100 more nodes, whose agents are simulated,
sets one version after another for all of them: one version breaks every node, another
one node in twenty, and both are reported as applied.

Then the history of each node is checked for linearizability: values, increasing
versions, which URL works, and final reads, so that no acknowledged write is lost.
Within 30 seconds of the last fault every reconciler must have caught up: no Secret,
bundle, row or URL without its owner, no wrong Ready condition, no stale replica. Of
the 100 nodes, at no time may more than the budget have been away, and no version may
have broken more of them than the rollout policy allows.

The printed line has the seed: --seed repeats the run with the same operations and
faults in the same order, though not with the same timing.`,
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
				return errors.New("the provider violates its guarantees:\n" + strings.Join(got.Wrong, "\n"))
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&run.For, "for", run.For, "duration of the run")
	cmd.Flags().Uint64Var(&run.Seed, "seed", run.Seed, "seed of the random decisions")
	return cmd
}
