// Command azuresim is a simulated Azure for tests and development: Entra ID and Azure Resource
// Manager for a network, and the metadata services and the Arc agent for a machine. Run under the
// name azcmagent, it is the Arc agent's command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	if filepath.Base(os.Args[0]) == "azcmagent" {
		root = newAzcmagent()
	}
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "azuresim",
		Short: "A simulated Azure that speaks the real protocols",
		Long: `azuresim serves Entra ID and Azure Resource Manager on one origin, so that Azure's
SDKs, the az CLI and aks-flex-node can be used without a subscription. On a
machine it serves the metadata services: HIMDS (Arc) and IMDS (Azure VM).

It is for development only: any client of its control address has full control.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), himdsCommand(), imdsCommand())
	return root
}
