package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// check returns the command that uses a node from outside, as its cluster does.
func (c *command) check() *cobra.Command {
	return &cobra.Command{
		Use: "check NODE", Short: "Check a node from outside: ports, a pod, Services, DNS",
		Args: cobra.ExactArgs(1),
		Long: `Connects to kubelet's port (10250) from the host, runs a pod on the node, reads its
logs and runs a command in it, uses Services and DNS from the pod, and a node port from
the host. It prints what works, in this order, up to the first failure, and removes its
objects.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := c.lab.Machine(args[0])
			if err != nil {
				return err
			}
			well, err := c.lab.CheckNode(cmd.Context(), m)
			if len(well) > 0 {
				fmt.Printf("%s: %s\n", m.Name, strings.Join(well, "; "))
			}
			return err
		},
	}
}
