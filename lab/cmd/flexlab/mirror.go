package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab/mirror"
)

// mirror returns the commands that make the artifact mirror slow or faulty, or restore it.
func (c *command) mirror() *cobra.Command {
	parent := &cobra.Command{Use: "mirror", Short: "Make the artifact mirror slow or faulty"}
	knobs := mirror.Knobs{}
	fault := mirror.Fault{}
	kind := ""
	set := &cobra.Command{
		Use:   "set",
		Short: "Set speed and fault; without flags, reset both",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind != "" {
				fault.Kind = mirror.Kind(kind)
				knobs.Faults = []mirror.Fault{fault}
			}
			return c.lab.Mirror().Set(cmd.Context(), knobs)
		},
	}
	f := set.Flags()
	f.Int64Var(&knobs.BytesPerSecond, "speed", 0,
		"bytes per second, for all connections together; 0 means no limit")
	f.StringVar(&kind, "fault", "", "cut, corrupt, status, html, stall, noRange or drip")
	f.StringVar(&fault.Path, "path", "",
		"affected files, such as 'kubelet*'; default all")
	f.Int64Var(&fault.After, "after", 0, "number of bytes of a body before the fault")
	f.IntVar(&fault.Times, "times", 0, "number of affected requests; 0 means all")
	f.IntVar(&fault.Status, "status", 0, "HTTP status for the fault status")
	parent.AddCommand(set, &cobra.Command{
		Use: "counts", Short: "Show the mirror's request counts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			counts, err := c.lab.Mirror().Counts(cmd.Context())
			if err != nil {
				return fmt.Errorf("%w; is the lab up?", err)
			}
			enc := json.NewEncoder(os.Stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(counts)
		},
	})
	return parent
}
