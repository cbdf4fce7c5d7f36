package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// check returns the command that uses a node from outside, as its cluster does.
func (c *command) check() *cobra.Command {
	return &cobra.Command{
		Use: "check NODE", Short: "Use a node from outside: ports, a pod, Services, names",
		Args: cobra.ExactArgs(1),
		Long: `Reaches kubelet's port (10250) from this box, runs a pod on the node, reads its logs
and runs a command in it, has the pod use Services and names, and asks a port of the
node (NodePort) from this box. It prints what is well, in this order, up to the first
that is not, and leaves nothing.`,
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
