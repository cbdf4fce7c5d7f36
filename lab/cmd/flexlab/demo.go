package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/demo"
)

// demo returns the command that shows a node's life in the lab.
func (c *command) demo() *cobra.Command {
	var quick bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a node's life: joined by a URL, changed, upgraded, rolled back, removed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.show(cmd.Context(), demo.Demo{Lab: c.lab, Agent: c.agent}, quick)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "only join a node with the newest versions")
	cmd.Flags().StringVar(
		&c.agent, "agent", c.agent, "aks-flex-node `program` to install on machines",
	)
	return cmd
}

// show builds what the first node needs, and older versions while nodes are in use.
func (c *command) show(ctx context.Context, d demo.Demo, quick bool) error {
	c.lab.Replicas = max(c.lab.Replicas, 1)
	if err := c.lab.Build(ctx, lab.Newest); err != nil {
		return err
	}
	if !quick {
		built, stop := c.builds(ctx, lab.Oldest, lab.Former)
		defer stop()
		d.Older = func(ctx context.Context) error {
			if err := <-built; err != nil {
				return err
			}
			return c.start(ctx, 0) // so that the provider offers it
		}
	}
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	numbers, err := d.Begin(ctx)
	if err != nil {
		return err
	}
	if !quick {
		join := numbers.Join
		if numbers, err = d.Life(ctx); err != nil {
			return err
		}
		numbers.Join = join
	}
	fmt.Printf(`
Look around:   bin/flexlab kubectl get nodes,pods -A -o wide
               bin/flexlab shell %[1]s
               bin/flexlab exec %[1]s -- aks-flex-node status
Stop:          make demo-down

%[2]s
`, demo.First, numbers)
	return nil
}

// builds builds versions in the background, one after the other. The channel has a result for each.
func (c *command) builds(ctx context.Context, versions ...lab.Versions) (<-chan error, func()) {
	ctx, cancel := context.WithCancel(ctx)
	results, ended := make(chan error, len(versions)), make(chan struct{})
	go func() {
		defer close(ended)
		for _, v := range versions {
			results <- c.lab.Build(ctx, v)
		}
	}()
	return results, func() {
		cancel()
		<-ended
	}
}
