package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab"
)

func (c *command) benchNeighbours() *cobra.Command {
	during, rounds := 90*time.Second, 3
	cmd := &cobra.Command{
		Use: "neighbours", Short: "Measure how a hostile target cluster affects others",
		Args: cobra.NoArgs,
		Long: `Registers ten clusters with simulated API servers. Nine have nodes, which are polled
and changed as fast as the provider responds. The tenth is hostile, in one way after
another: endless and compressed responses, redirects, giant names, keys and requests,
60,000 Nodes, endless streams, stalls. The control is the tenth cluster with 1,000
Nodes of the usual size and the same number of bytes in valid events. Then its tenant,
in its own subscription, uses up its quota with nodes of max size and PUTs them
continuously, within the default rate limits; the control is the same number of small
nodes in as many bytes. Each measurement begins with a restart of the provider. The
last line has the medians of the ratios.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.measureNeighbours(cmd.Context(), during, rounds)
		},
	}
	cmd.Flags().DurationVar(&during, "for", during, "duration of each measurement")
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "number of rounds")
	return cmd
}

func (c *command) measureNeighbours(ctx context.Context, during time.Duration, rounds int) error {
	c.lab.Replicas = 1
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	n, err := c.lab.NewNeighbours(ctx)
	if err != nil {
		return err
	}
	var cluster, tenant comparison
	for range rounds {
		hostile, err := n.Hostile(ctx, during)
		if err != nil {
			return err
		}
		loud, err := n.Loud(ctx, during, hostile.Sent)
		if err != nil {
			return err
		}
		cluster.add(c.lab, "cluster", hostile, loud)
		large, err := n.Tenant(ctx, during, true)
		if err != nil {
			return err
		}
		ordinary, err := n.Tenant(ctx, during, false)
		if err != nil {
			return err
		}
		tenant.add(c.lab, "tenant", large, ordinary)
	}
	fmt.Printf("neighbours hostile_polls=%.2f hostile_puts=%.2f hostile_mib=%.0f "+
		"tenant_polls=%.2f tenant_puts=%.2f tenant_mib=%.0f\n",
		middle(cluster.polls), middle(cluster.puts), mebibytes(cluster.memory),
		middle(tenant.polls), middle(tenant.puts), mebibytes(tenant.memory))
	return nil
}

// comparison holds the ratios of all rounds and the max memory.
type comparison struct {
	polls, puts []float64
	memory      int64
}

func (c *comparison) add(l *lab.Lab, what string, harmed, control lab.Served) {
	for i, s := range []lab.Served{harmed, control} {
		l.Say("%s, %s: %.0f polls/s, %.0f PUTs/s, %.0f MiB of memory, %.1f MiB/s sent",
			what, []string{"hostile", "control"}[i], s.Polls, s.Puts, mebibytes(s.Memory),
			mebibytes(int64(s.Sent)))
	}
	c.polls = append(c.polls, harmed.Polls/control.Polls)
	c.puts = append(c.puts, harmed.Puts/control.Puts)
	c.memory = max(c.memory, harmed.Memory)
}

func middle(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
