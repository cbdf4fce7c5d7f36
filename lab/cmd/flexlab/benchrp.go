package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/lab"
)

func (c *command) benchRP() *cobra.Command {
	nodes, rounds, profiles := 100_000, 3, ""
	cmd := &cobra.Command{
		Use: "rp", Short: "Measure the resource provider: polls, latency, memory, start",
		Args: cobra.NoArgs,
		Long: `Measures the resource provider with many stored nodes, each with its own machine key,
token and full report, over TLS and with the client on the same machine:

  start      from the start of the program until it is ready, with all of that stored
  bytes, full bytes
             live heap and stacks per node, without the fixed base: with nodes only; with
             reports, last-seen times and each agent's token
  leader     the same per watched Node of the cluster, for 10,000 of them
  conn       the same per connection with a poll that waits for a change, for 10,000
  wake       the 99th percentile from the response to a change until its waiting agent
             has it, and from the request; one change per agent
  polls      rate of conditional reads of unchanged nodes
  apiserver  rate of reads of a ConfigMap with the same content at the lab's API server
  bare       rate of a handler that only responds 304
  p99        of the polls of 100,000 nodes (3,400 per second), over 10,000 connections, for
             a minute in which metrics are read and last-seen times stored
  stampede   10,000 agents at once, each over a new connection
  script     the same p99 beside a caller that sends 1,000 LISTs and PUTs per second and
             ignores 429
  put        rate of changes of stored nodes without a URL

Rounds are interleaved. polls, apiserver and bare use Go's HTTP client, all others one
that uses less CPU time. The last line has the keys of the targets.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.benchProvider(cmd.Context(), nodes, rounds, profiles)
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", nodes, "number of stored nodes, more than 1000")
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "number of rounds")
	cmd.Flags().StringVar(&profiles, "profiles", "",
		"write profiles of the provider's memory to this directory (go tool pprof)")
	return cmd
}

// clientGC reduces the client's garbage collections while latency is measured, as it shares the
// processors with the provider. The rates before it stay comparable with earlier results.
const clientGC = 400

// firstNodes is the number of nodes at which base memory is measured.
const firstNodes = 1000

// rpBench is a running measurement of a provider.
type rpBench struct {
	*lab.ProviderBench
	say        func(string, ...any)
	nodes      int
	base       int64 // memory with firstNodes
	start      time.Duration
	bare, full int64 // bytes per node
	leader     int64
	conn       float64
	wake       lab.Woken
}

// benchProvider measures a provider, which must hold no nodes.
func (c *command) benchProvider(
	ctx context.Context, nodes, rounds int, profiles string,
) error {
	if nodes <= firstNodes {
		return fmt.Errorf("cannot measure with %d nodes: the minimum is more than %d", nodes, firstNodes)
	}
	c.lab.Replicas = 1
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	bench, err := c.lab.NewProviderBench(ctx)
	if err != nil {
		return err
	}
	bench.Profiles = profiles
	b := &rpBench{ProviderBench: bench, say: c.lab.Say, nodes: nodes}
	if err := b.memory(ctx); err != nil {
		return err
	}
	_, resume, err := b.watch(ctx)
	if err != nil {
		return err
	}
	err = b.traffic(ctx, rounds)
	return errors.Join(err, resume())
}

// fill stores nodes and restarts the provider.
func (b *rpBench) fill(ctx context.Context, nodes int) (live int64, err error) {
	began := time.Now()
	if err := b.Fill(ctx, nodes); err != nil {
		return 0, err
	}
	b.say("%d nodes stored (%.0f s)", nodes, time.Since(began).Seconds())
	if b.start, err = b.Restart(ctx); err != nil {
		return 0, err
	}
	return b.Live(ctx, fmt.Sprintf("%d", nodes))
}

// memory measures memory per node and the start.
func (b *rpBench) memory(ctx context.Context) error {
	base, err := b.fill(ctx, firstNodes)
	if err != nil {
		return err
	}
	more := int64(b.nodes - firstNodes)
	live, err := b.fill(ctx, b.nodes)
	if err != nil {
		return err
	}
	b.base, b.bare = base, (live-base)/more
	b.say("without reports: start %.1f s, %d bytes a node", b.start.Seconds(), b.bare)
	began := time.Now()
	if err := b.Report(ctx); err != nil {
		return err
	}
	b.say("all agents have reported (%.0f s)", time.Since(began).Seconds())
	if b.start, err = b.Restart(ctx); err != nil {
		return err
	}
	if err := b.PollAll(ctx); err != nil {
		return err
	}
	if live, err = b.Live(ctx, "reports"); err != nil {
		return err
	}
	resident, err := b.Memory()
	if err != nil {
		return err
	}
	stored, err := b.Stored(ctx)
	if err != nil {
		return err
	}
	b.full = (live - base) / more
	b.say("with reports and tokens: start %.1f s, %d bytes a node, %.0f MiB live, %.0f MiB "+
		"resident, store %.0f MiB", b.start.Seconds(), b.full, mebibytes(live),
		mebibytes(resident), mebibytes(stored))
	return nil
}

// watch adds Nodes to the cluster and measures their memory.
func (b *rpBench) watch(ctx context.Context) (nodes int, resume func() error, err error) {
	before, err := b.Live(ctx, "before-watch")
	if err != nil {
		return 0, nil, err
	}
	began := time.Now()
	if nodes, resume, err = b.Nodes(ctx); err != nil {
		return 0, nil, err
	}
	after, err := b.Live(ctx, "watch")
	if err != nil {
		return 0, nil, errors.Join(err, resume())
	}
	b.leader = (after - before) / int64(nodes)
	b.say("%d Nodes are watched (%.0f s): %d bytes each", nodes, time.Since(began).Seconds(),
		b.leader)
	return nodes, resume, nil
}

// wait measures waiting polls' connections and their wake-up.
func (b *rpBench) wait(ctx context.Context) error {
	before, err := b.Live(ctx, "before-wait")
	if err != nil {
		return err
	}
	fleet, err := b.Connect(ctx)
	if err != nil {
		return err
	}
	defer fleet.Close()
	waiting, err := b.Wait(ctx, fleet)
	if err != nil {
		return err
	}
	after, err := b.Live(ctx, "wait")
	if err != nil {
		return errors.Join(err, waiting.End())
	}
	b.conn = float64(after-before) / 1024 / float64(fleet.Agents())
	if b.wake, err = waiting.Wake(ctx); err != nil {
		return err
	}
	b.say("%d polls wait: %.1f KiB each; woken %.1f ms after the response to the change, %.1f ms "+
		"after the request (p99); %d polled again meanwhile", fleet.Agents(), b.conn,
		milliseconds(b.wake.Stored), milliseconds(b.wake.Sent), b.wake.Again)
	return nil
}

// traffic measures requests and prints all results.
func (b *rpBench) traffic(ctx context.Context, rounds int) error {
	if err := b.wait(ctx); err != nil {
		return err
	}
	rates, err := b.Compare(ctx, rounds)
	if err != nil {
		return err
	}
	debug.SetGCPercent(clientGC)
	p99, err := b.Latency(ctx)
	if err != nil {
		return err
	}
	failed, took, err := b.Stampede(ctx)
	if failed > 0 {
		b.say("stampede: %d requests failed, the last with: %v", failed, err)
	}
	resident, err := b.Memory()
	if err != nil {
		return err
	}
	script, err := b.Script(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("nodes=%d bare_p99_ms=%.1f after_polls_mib=%.0f stampede_s=%.1f "+
		"stampede_failed=%d script_p99_ms=%.1f script_answered=%d script_429=%d "+
		"longpoll_sent_ms=%.1f longpoll_again=%d\n", b.nodes,
		milliseconds(p99.Bare), mebibytes(resident), took.Seconds(), failed,
		milliseconds(script.Polls), script.Answered, script.Refused,
		milliseconds(b.wake.Sent), b.wake.Again)
	puts, err := b.Puts(ctx, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("rp polls_s=%.0f apiserver_s=%.0f bare_s=%.0f vs_apiserver=%.1f vs_bare=%.2f "+
		"p99_ms=%.1f bytes_per_node=%d start_s=%.1f put_s=%.0f full_bytes_per_node=%d "+
		"leader_bytes_per_node=%d conn_kib=%.1f longpoll_wake_ms=%.1f\n",
		rates.Provider, rates.APIServer, rates.Bare, rates.Provider/rates.APIServer,
		rates.Provider/rates.Bare, milliseconds(p99.Provider), b.bare, b.start.Seconds(), puts,
		b.full, b.leader, b.conn, milliseconds(b.wake.Stored))
	return nil
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
