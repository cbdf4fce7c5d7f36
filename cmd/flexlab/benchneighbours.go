package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

func (c *command) benchNeighbours() *cobra.Command {
	during, rounds := 90*time.Second, 3
	cmd := &cobra.Command{
		Use: "neighbours", Short: "Measure what a hostile target cluster costs the others",
		Args: cobra.NoArgs,
		Long: `Registers ten clusters with the provider, whose API servers are simulated. Nine have
nodes, which are polled and changed as fast as the provider answers. The tenth is
hostile: endless and packed answers, redirects, giant names, keys and requests, 60,000
Nodes, streams without end, stalls, one after the other. The control is the tenth
cluster with 20,000 Nodes of the usual size and as many bytes in valid events. Both
begin with a start of the provider. The last line has the medians of the ratios.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.measureNeighbours(cmd.Context(), during, rounds)
		},
	}
	cmd.Flags().DurationVar(&during, "for", during, "how long each measurement takes")
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "how many rounds")
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
	var polls, puts []float64
	var most int64
	for range rounds {
		hostile, err := n.Hostile(ctx, during)
		if err != nil {
			return err
		}
		loud, err := n.Loud(ctx, during, hostile.Sent)
		if err != nil {
			return err
		}
		for mode, s := range map[string]lab.Served{"hostile": hostile, "control": loud} {
			c.lab.Say("%s: %.0f polls and %.0f PUTs in a second, %.0f MiB, %.1f MiB sent in a second",
				mode, s.Polls, s.Puts, mebibytes(s.Memory), mebibytes(int64(s.Sent)))
		}
		polls, puts = append(polls, hostile.Polls/loud.Polls), append(puts, hostile.Puts/loud.Puts)
		most = max(most, hostile.Memory)
	}
	slices.Sort(polls)
	slices.Sort(puts)
	fmt.Printf("neighbours polls=%.2f puts=%.2f memory_mib=%.0f\n", polls[len(polls)/2],
		puts[len(puts)/2], mebibytes(most))
	return nil
}
