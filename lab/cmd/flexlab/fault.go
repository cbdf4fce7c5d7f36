package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// status returns the command that lists running processes. Scripts call it before they start their
// own lab.
func (c *command) status() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the lab's running processes; fail if there are none",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			names, err := c.lab.Running()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				return errors.New("no lab is running; `flexlab up` starts one")
			}
			for _, name := range names {
				fmt.Println(name)
			}
			return nil
		},
	}
}

func (c *command) apiserver() *cobra.Command {
	parent := &cobra.Command{
		Use: "apiserver", Short: "Stop and start the API server, and nothing else",
	}
	parent.AddCommand(&cobra.Command{
		Use: "stop", Short: "Stop the API server", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return c.lab.StopAPIServer() },
	}, &cobra.Command{
		Use: "start", Short: "Start the API server again", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.lab.StartAPIServer(cmd.Context())
		},
	})
	return parent
}

func (c *command) rotateCA() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate-ca",
		Short: "Give the cluster a new certificate authority, as az aks rotate-certs does",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.lab.RotateCA(cmd.Context()) },
	}
}
