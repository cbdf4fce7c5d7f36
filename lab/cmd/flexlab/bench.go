package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab"
)

func (c *command) bench() *cobra.Command {
	parent := &cobra.Command{Use: "bench", Short: "Run benchmarks, each a comparison in one run"}
	runs := 3
	join := &cobra.Command{
		Use: "join", Short: "Compare joins: ours, a plain script, and the limit", Args: cobra.NoArgs,
		Long: `Measures, on fresh machines and with the artifact mirror at 100 Mbit/s, the time
from the start of a command until the API server reports that the Node is Ready:

  ours    aks-flex-node bootstrap
  serial  a plain script that runs the same steps one after another
          (lab/serial.sh)
  limit   downloading the critical bytes at full bandwidth, and the start of
          containerd and kubelet with everything installed (bare)
  directory, warm
          ours with the artifacts on disk: in a directory, from which they are
          verified and unpacked; and in the store, as in an image with them

and, measured inside the machine, second_ms: a bootstrap that is a no-op, and
leave_s: unbootstrap --drain-timeout=0.

Rounds are interleaved, with those of the program in --against, if any. The last
line has the medians and their ratios.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.benchJoin(cmd.Context(), runs) },
	}
	join.Flags().IntVar(&runs, "runs", 3, "number of rounds")
	duration, monitoring := 5*time.Minute, false
	agent := &cobra.Command{
		Use: "agent", Short: "Measure the daemon: memory, CPU, size of the program", Args: cobra.NoArgs,
		Long: `Measures the daemon as a service on its own machine while it is idle and checks the
node. With --monitoring it follows the lab's provider with long polls over one
connection, and poll_bytes are the bytes of a poll without a change, in both
directions and including TLS.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.benchAgent(cmd.Context(), duration, monitoring)
		},
	}
	agent.Flags().BoolVar(&monitoring, "monitoring", false, "follow the provider too")
	agent.Flags().DurationVar(&duration, "for", duration, "duration of the measurement")
	token := &cobra.Command{
		Use: "token [NODE]", Short: "Measure aks-flex-node token with a cached token",
		Args: cobra.MaximumNArgs(1),
		Long: `Measures whole processes, as kubelet starts them, on a node that joined with an
Azure identity and kubeletCredential token; without NODE, on a new machine.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.benchToken(cmd.Context(), append(args, "")[0])
		},
	}
	for _, measured := range []*cobra.Command{join, agent, token} {
		measured.Flags().StringVar(&c.against, "against", "",
			"another aks-flex-node `program` to compare with")
	}
	parent.AddCommand(c.benchRP(), c.benchNeighbours(),
		c.versionFlags(join), c.versionFlags(agent), c.versionFlags(token))
	return parent
}

func (c *command) benchJoin(ctx context.Context, runs int) error {
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	var ours, against samples
	var serial, limit, directory, warm, bare []float64
	for i := range runs {
		t, err := c.lab.BenchJoin(ctx, c.agent, c.versions)
		if err != nil {
			return err
		}
		fmt.Printf("round %d: ours %.2f s, serial %.2f s, limit %.2f s (%.1f MB + %.2f s bare), "+
			"directory %.2f s, warm %.2f s, second %.1f ms, leave %.2f s\n",
			i+1, t.Ours.Ready, t.Serial, t.Limit(), float64(t.Critical)/1e6, t.Bare,
			t.Directory, t.Warm, t.Ours.Second, t.Ours.Leave)
		ours.add(t.Ours)
		serial, limit = append(serial, t.Serial), append(limit, t.Limit())
		directory, warm, bare = append(directory, t.Directory), append(warm, t.Warm), append(bare, t.Bare)
		if c.against == "" {
			continue
		}
		other, err := c.lab.BenchProgram(ctx, "bench-against", c.against, c.versions)
		if err != nil {
			return fmt.Errorf("%s: %w", c.against, err)
		}
		fmt.Printf("round %d: against %.2f s, second %.1f ms, leave %.2f s\n",
			i+1, other.Ready, other.Second, other.Leave)
		against.add(other)
	}
	a, b, l := median(ours.ready), median(serial), median(limit)
	fmt.Printf("directory/bare=%.2f\n", median(directory)/median(bare))
	fmt.Printf("join ours_s=%.2f serial_s=%.2f limit_s=%.2f ours/serial=%.2f ours/limit=%.2f "+
		"warm/bare=%.2f second_ms=%.1f leave_s=%.2f%s\n", a, b, l, a/b, a/l,
		median(warm)/median(bare), median(ours.second), median(ours.leave), ours.ratios(against))
	return nil
}

// samples are a program's results in all rounds.
type samples struct{ ready, second, leave []float64 }

func (s *samples) add(t lab.ProgramTimes) {
	s.ready, s.second = append(s.ready, t.Ready), append(s.second, t.Second)
	s.leave = append(s.leave, t.Leave)
}

// ratios returns the ratios to another program's medians, or "" without one.
func (s *samples) ratios(against samples) string {
	if len(against.ready) == 0 {
		return ""
	}
	return fmt.Sprintf(" ours/against=%.2f second/against=%.2f leave/against=%.2f",
		median(s.ready)/median(against.ready), median(s.second)/median(against.second),
		median(s.leave)/median(against.leave))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
