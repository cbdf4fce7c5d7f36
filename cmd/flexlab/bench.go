package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

func (c *command) bench() *cobra.Command {
	parent := &cobra.Command{Use: "bench", Short: "Measure, side by side in one run"}
	runs := 3
	join := &cobra.Command{
		Use: "join", Short: "Compare joins: ours, a plain script, and the limit", Args: cobra.NoArgs,
		Long: `Measures, on fresh machines and with the artifact mirror at 100 Mbit/s, the time
from the start of a command until the API server says that the Node is Ready:

  ours    aks-flex-node bootstrap
  serial  a plain script that does the same steps one after the other
          (internal/lab/serial.sh)
  limit   the critical bytes at full bandwidth, and the start of containerd and
          kubelet with everything in place (bare)
  directory, warm
          ours with the artifacts on disk: in a directory, still to be verified
          and unpacked; and in the store, as in an image that has them

Rounds are interleaved; the last line gives the medians and their ratios.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.benchJoin(cmd.Context(), runs) },
	}
	join.Flags().IntVar(&runs, "runs", 3, "how many rounds")
	duration := 5 * time.Minute
	agent := &cobra.Command{
		Use: "agent", Short: "Measure the daemon: memory, CPU, size of the program", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.benchAgent(cmd.Context(), duration) },
	}
	agent.Flags().DurationVar(&duration, "for", duration, "for how long")
	token := &cobra.Command{
		Use: "token NODE", Short: "Measure aks-flex-node token on a node that joined with an Azure identity", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.benchToken(cmd.Context(), args[0]) },
	}
	sizes, rounds := []int{1_000, 10_000, 100_000}, 3
	rp := &cobra.Command{
		Use: "rp", Short: "Measure the resource provider: polls, latency, memory, start", Args: cobra.NoArgs,
		Long: `Measures the resource provider with growing numbers of nodes stored, over TLS, with
tokens, its client on the same machine:

  polls      conditional reads of unchanged nodes, as many as are answered
  apiserver  the lab's API server answering reads of a ConfigMap with the same content
  bare       a handler that answers 304 and does nothing else
  p99        of the polls of 100,000 nodes (3,400 in a second)
  memory     of the process's own, by node, without its fixed base
  start      of the program until it is ready
  stampede   10,000 agents at once, each over a new connection

Rounds are interleaved; the last line is for the largest number.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.benchProvider(cmd.Context(), sizes, rounds) },
	}
	rp.Flags().IntSliceVar(&sizes, "nodes", sizes, "how many nodes are stored, one after the other, growing")
	rp.Flags().IntVar(&rounds, "rounds", rounds, "how many rounds")
	parent.AddCommand(rp, c.versionFlags(join), c.versionFlags(agent), token)
	return parent
}

func (c *command) benchJoin(ctx context.Context, runs int) error {
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	var ours, serial, limit, directory, warm, bare []float64
	for i := range runs {
		t, err := c.lab.BenchJoin(ctx, c.agent, c.versions)
		if err != nil {
			return err
		}
		fmt.Printf("round %d: ours %.2f s, serial %.2f s, limit %.2f s (%.1f MB + %.2f s bare), directory %.2f s, warm %.2f s\n",
			i+1, t.Ours, t.Serial, t.Limit(), float64(t.Critical)/1e6, t.Bare, t.Directory, t.Warm)
		ours, serial, limit = append(ours, t.Ours), append(serial, t.Serial), append(limit, t.Limit())
		directory, warm, bare = append(directory, t.Directory), append(warm, t.Warm), append(bare, t.Bare)
	}
	a, b, l := median(ours), median(serial), median(limit)
	fmt.Printf("directory/bare=%.2f\n", median(directory)/median(bare))
	fmt.Printf("join ours_s=%.2f serial_s=%.2f limit_s=%.2f ours/serial=%.2f ours/limit=%.2f warm/bare=%.2f\n",
		a, b, l, a/b, a/l, median(warm)/median(bare))
	return nil
}

// chaos works on a provider of several replicas while they and their store are harmed.
func (c *command) chaos() *cobra.Command {
	during := 10 * time.Minute
	cmd := &cobra.Command{
		Use: "chaos", Short: "Kill and pause the provider's replicas and store while it is worked on", Args: cobra.NoArgs,
		Long: `Starts three replicas of the resource provider on an etcd of three members, has
clients create, read and delete nodes through all of them, and meanwhile kills and
pauses replicas and members. Then it is judged whether the history of answers is
linearizable: whether one order explains every answer, the last reads included, so
that no acknowledged write is lost.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.lab.Replicas, c.lab.Members = 3, 3
			if err := c.start(cmd.Context(), 0); err != nil {
				return err
			}
			got, err := c.lab.RunChaos(cmd.Context(), during)
			if err != nil {
				return err
			}
			fmt.Printf("chaos operations=%d unknown=%d faults=%d linearizable=%v\n", got.Operations, got.Unknown, got.Faults, got.Linearizable)
			if !got.Linearizable || len(got.Wrong) > 0 {
				return fmt.Errorf("the history is not as it must be: %s", strings.Join(got.Wrong, "; "))
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&during, "for", during, "for how long")
	return cmd
}

// benchProvider measures a provider of its own lab, which must be up with --rp and hold no nodes.
func (c *command) benchProvider(ctx context.Context, sizes []int, rounds int) error {
	c.lab.Replicas = 1
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	b, err := c.lab.NewProviderBench(ctx)
	if err != nil {
		return err
	}
	var base, perNode int64
	last := ""
	for i, n := range sizes {
		began := time.Now()
		if err := b.Fill(ctx, n); err != nil {
			return err
		}
		c.lab.Say("%d nodes stored (%.0f s)", n, time.Since(began).Seconds())
		start, err := b.Restart(ctx)
		if err != nil {
			return err
		}
		memory, err := b.Memory()
		if err != nil {
			return err
		}
		if i == 0 {
			base = memory // the fixed base, and the first nodes
		} else {
			perNode = (memory - base) / int64(n-sizes[0])
		}
		rates, err := b.Compare(ctx, rounds)
		if err != nil {
			return err
		}
		p99, err := b.Latency(ctx)
		if err != nil {
			return err
		}
		failed, took, err := b.Stampede(ctx)
		if failed > 0 {
			c.lab.Say("the stampede: %d were not answered, the last with: %v", failed, err)
		}
		polled, err := b.Memory()
		if err != nil {
			return err
		}
		last = fmt.Sprintf("rp polls_s=%.0f apiserver_s=%.0f bare_s=%.0f vs_apiserver=%.1f vs_bare=%.2f p99_ms=%.1f bytes_per_node=%d start_s=%.1f",
			rates.Provider, rates.APIServer, rates.Bare, rates.Provider/rates.APIServer, rates.Provider/rates.Bare, float64(p99.Microseconds())/1000, perNode, start.Seconds())
		fmt.Printf("nodes=%d %s memory_mib=%.0f after_polls_mib=%.0f stampede_s=%.1f stampede_failed=%d\n", n, last, float64(memory)/(1<<20), float64(polled)/(1<<20), took.Seconds(), failed)
	}
	fmt.Println(last)
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// benchAgent runs the daemon as a service on a machine of its own and measures it while it keeps watch.
func (c *command) benchAgent(ctx context.Context, duration time.Duration) (err error) {
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	m, err := c.lab.AddMachine(ctx, "bench-agent")
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := c.lab.RemoveMachine(context.WithoutCancel(ctx), m.Name); err == nil {
			err = removeErr
		}
	}()
	if err := c.lab.Equip(ctx, m, c.agent, c.versions); err != nil {
		return err
	}
	if _, err := c.lab.Output(ctx, m, "systemctl", "enable", "--now", "aks-flex-node-agent"); err != nil {
		return err
	}
	before, err := c.cpu(ctx, m)
	if err != nil {
		return err
	}
	c.lab.Say("measuring the daemon for %s", duration)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
	}
	after, err := c.cpu(ctx, m)
	if err != nil {
		return err
	}
	rss, err := c.lab.Output(ctx, m, "bash", "-c", "awk '/VmRSS/{print $2}' /proc/$(systemctl show -p MainPID --value aks-flex-node-agent)/status")
	if err != nil {
		return err
	}
	kib, err := strconv.ParseFloat(strings.TrimSpace(rss), 64)
	if err != nil {
		return fmt.Errorf("cannot read the daemon's memory: %w", err)
	}
	info, err := os.Stat(c.agent)
	if err != nil {
		return err
	}
	fmt.Printf("agent rss_mib=%.1f cpu_percent=%.3f binary_mib=%.1f\n", kib/1024, 100*(after-before).Seconds()/duration.Seconds(), float64(info.Size())/(1<<20))
	return nil
}

// tokenRuns is how often the token is asked for.
const tokenRuns = 50

// benchToken measures whole processes, as kubelet starts them, with the token kept already. The time includes that of entering the
// machine, which `true` is measured for.
func (c *command) benchToken(ctx context.Context, name string) error {
	m, err := c.lab.Machine(name)
	if err != nil {
		return err
	}
	measure := func(argv ...string) (ms, mib float64, err error) {
		var times []float64
		for range tokenRuns {
			cmd, err := c.lab.Command(ctx, m, argv...)
			if err != nil {
				return 0, 0, err
			}
			began := time.Now()
			if err := cmd.Run(); err != nil {
				return 0, 0, fmt.Errorf("cannot run %s in %s: %w", argv[0], name, err)
			}
			times = append(times, float64(time.Since(began).Microseconds())/1000)
			usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			if ok {
				mib = max(mib, float64(usage.Maxrss)/1024)
			}
		}
		return median(times), mib, nil
	}
	enter, _, err := measure("true")
	if err != nil {
		return err
	}
	ms, mib, err := measure("aks-flex-node", "token")
	if err != nil {
		return err
	}
	fmt.Printf("token wall_ms=%.1f entering_ms=%.1f rss_mib=%.1f\n", ms, enter, mib)
	return nil
}

// cpu is the time that the daemon has used, user and system.
func (c *command) cpu(ctx context.Context, m lab.Machine) (time.Duration, error) {
	out, err := c.lab.Output(ctx, m, "bash", "-c", "awk '{print $14+$15}' /proc/$(systemctl show -p MainPID --value aks-flex-node-agent)/stat")
	if err != nil {
		return 0, err
	}
	ticks, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return 0, fmt.Errorf("cannot read the daemon's time: %w", err)
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // USER_HZ is 100 on Linux
}
