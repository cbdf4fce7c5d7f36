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
		Short: "Begin no change and no repair for a time",
		Long: `Has the agent's service begin no change and no repair of drift, for work on the machine by
hand. The node goes on running and is checked as before; what is under way is finished.
What a person runs, such as bootstrap, drift --repair, rollback and unbootstrap, is not
held, and neither is the deletion of the flexNodeConfig. The pause is shown by status and
by the condition NotPaused, also on the flexNodeConfig, and ends by itself.`,
		Example: `  aks-flex-node pause --for 8h --reason "replacing the disk, ticket 4711"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if length <= 0 || length > longestPause {
				return usageError("cannot pause: --for must be more than 0 and at most %s", longestPause)
			}
			return o.pause(cmd.Context(), length, reason)
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "how long, such as 30m or 8h; 720h at most")
	cmd.Flags().StringVar(&reason, "reason", "", "why, which others will read")
	return cmd
}

func resumeCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `Ends what pause began: changes that wait begin within seconds. Without a pause it does
nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.pause(cmd.Context(), 0, "") },
	}
}

func (o *options) pause(ctx context.Context, length time.Duration, reason string) error {
	a, done, err := o.agent(o.applied(ctx))
	if err != nil {
		return err
	}
	defer done()
	p, err := change.SetPause(ctx, a, length, reason)
	if err != nil {
		return err
	}
	return o.print(map[string]any{"pause": p}, func(w io.Writer) {
		if p == nil {
			fmt.Fprintln(w, "The machine is not paused")
			return
		}
		fmt.Fprintf(w, "Paused until %s; `aks-flex-node resume` ends that\n", moment(p.Until))
	})
}
