package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab/demo"
)

// demo shows the whole way: lab, machine, node, changes, deletion.
func (c *command) demo() *cobra.Command {
	d := demo.Demo{Lab: c.lab}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a node's life: joined by a URL, changed, upgraded, rolled back, given back",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.Agent = c.agent
			return c.show(cmd.Context(), d)
		},
	}
	cmd.Flags().BoolVar(
		&d.Quick, "quick", false, "join only, with the newest versions, and leave the node as it is",
	)
	cmd.Flags().StringVar(
		&c.agent, "agent", c.agent, "the aks-flex-node `program` to put into the machine",
	)
	return cmd
}

func (c *command) show(ctx context.Context, d demo.Demo) error {
	if err := c.lab.Build(ctx, d.Versions()...); err != nil {
		return err
	}
	c.lab.Replicas = max(c.lab.Replicas, 1)
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	numbers, err := d.Run(ctx)
	if err != nil {
		return err
	}
	more := "bin/flexlab join " + demo.Name + "     make it a node again, by a file"
	if d.Quick {
		more = "bin/flexlab exec " + demo.Name + " -- aks-flex-node status"
	}
	fmt.Printf(`
Look around:   bin/flexlab kubectl get nodes,pods -A -o wide
               bin/flexlab shell %[1]s
               %[2]s
Stop:          make demo-down

%[3]s
`, demo.Name, more, numbers)
	return nil
}
