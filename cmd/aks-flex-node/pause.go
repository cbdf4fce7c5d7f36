package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
)

// longestPause bounds a pause: a machine that is never resumed must get its changes again.
const longestPause = 30 * 24 * time.Hour

func pauseCommand(o *options) *cobra.Command {
	length, reason := time.Duration(0), ""
	cmd := &cobra.Command{
		Use:   "pause --for DURATION",
		Short: "Stop changes and repairs for a time",
		Long: `Stops the agent's service from starting changes and repairs of drift, for manual work on
the machine. The node keeps running and is still checked; a change that is under way is
finished. Commands that an operator runs, such as bootstrap, drift --repair, rollback and
unbootstrap, are not held, and neither is the deletion of the flexNodeConfig. The pause is
shown by status and by the condition NotPaused, also on the flexNodeConfig, and ends by
itself.`,
		Example: `  aks-flex-node pause --for 8h --reason "replacing the disk, ticket 4711"`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			if length <= 0 || length > longestPause {
				return usageError("cannot pause: --for must be more than 0 and at most %s", longestPause)
			}
			return o.pause(ctx, a, length, reason)
		}),
	}
	cmd.Flags().DurationVar(&length, "for", 0, "how long, such as 30m or 8h; at most 720h")
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, which status and the provider show")
	return cmd
}

func resumeCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long:  `Ends a pause: changes that wait start within seconds. Without a pause it does nothing.`,
		RunE: o.with(func(ctx context.Context, a *change.Agent, _ []string) error {
			return o.pause(ctx, a, 0, "")
		}),
	}
}

func (o *options) pause(
	ctx context.Context, a *change.Agent, length time.Duration, reason string,
) error {
	p, err := change.SetPause(ctx, a, length, reason)
	return o.show(map[string]any{"pause": p}, err, func(w io.Writer) {
		if p == nil {
			fmt.Fprintln(w, "The machine is not paused")
			return
		}
		fmt.Fprintf(w, "Paused until %s; `aks-flex-node resume` ends the pause\n", moment(p.Until))
	})
}
