package main

import "github.com/spf13/cobra"

func (c *command) bench() *cobra.Command {
	return &cobra.Command{Use: "bench", Short: "Measure, side by side in one run"}
}
