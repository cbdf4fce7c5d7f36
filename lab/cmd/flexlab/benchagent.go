package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// contestant is a program on its own machine.
type contestant struct {
	program string
	machine lab.Machine
}

// contestants adds a machine for our program and one for that of --against, and calls equip for
// each. end removes them.
func (c *command) contestants(
	ctx context.Context, name string, equip func(m lab.Machine, program string) error,
) (list []contestant, end func() error, err error) {
	end = func() (err error) {
		ctx := context.WithoutCancel(ctx)
		for _, o := range list {
			err = errors.Join(err, c.lab.RemoveMachine(ctx, o.machine.Name))
			_, gone := c.lab.Kubectl(ctx, "", "delete", "node", o.machine.Name, "--ignore-not-found")
			err = errors.Join(err, gone)
		}
		return err
	}
	programs := []string{c.agent}
	if c.against != "" {
		programs = append(programs, c.against)
	}
	for i, program := range programs {
		m, err := c.lab.AddMachine(ctx, fmt.Sprintf("%s-%d", name, i))
		if m.Name != "" {
			list = append(list, contestant{program, m})
		}
		if err == nil {
			err = equip(m, program)
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", program, err), end())
		}
	}
	return list, end, nil
}

// daemon holds a daemon's measurements: RSS in MiB, CPU in percent, program size in MiB.
type daemon struct{ rss, cpu, size float64 }

// benchAgent measures the daemon as a service on its own machine while it checks the node and, with
// monitoring, follows a provider. Two programs are measured at the same time.
func (c *command) benchAgent(
	ctx context.Context, duration time.Duration, monitoring bool,
) (err error) {
	equip := c.watch
	if monitoring {
		c.lab.WithAzure, c.lab.Replicas, equip = true, max(1, c.lab.Replicas), c.follow
	}
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	list, end, err := c.contestants(ctx, "bench-agent", func(m lab.Machine, program string) error {
		if err := equip(ctx, m, program); err != nil {
			return err
		}
		if err := c.lab.WaitReady(ctx, m.Name); err != nil {
			return err
		}
		return c.keepsWatch(ctx, m)
	})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, end())
		for _, o := range list {
			if monitoring {
				err = errors.Join(err, c.unfollow(context.WithoutCancel(ctx), o.machine))
			}
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rest): // the status file appears before the join is complete
	}
	before := make([]time.Duration, len(list))
	for i, o := range list {
		if before[i], err = c.cpu(ctx, o.machine); err != nil {
			return err
		}
	}
	var first traffic
	if monitoring {
		if first, err = c.firstTraffic(ctx, list[0].machine); err != nil {
			return err
		}
	}
	c.lab.Say("measuring the daemon for %s", duration)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
	}
	used := make([]daemon, len(list))
	for i, o := range list {
		if used[i], err = c.used(ctx, o, before[i], duration); err != nil {
			return err
		}
	}
	ratios := ""
	if monitoring {
		last, err := c.traffic(ctx, list[0].machine)
		if err != nil {
			return err
		}
		bytes, err := perPoll(first, last)
		if err != nil {
			return err
		}
		ratios = fmt.Sprintf(" polls=%d poll_bytes=%.0f", last.polls-first.polls, bytes)
	}
	if ours := used[0]; len(used) == 2 {
		ratios += fmt.Sprintf(" rss/against=%.2f cpu/against=%.2f binary/against=%.2f",
			ours.rss/used[1].rss, ours.cpu/used[1].cpu, ours.size/used[1].size)
	}
	fmt.Printf("agent rss_mib=%.1f cpu_percent=%.3f binary_mib=%.1f%s\n",
		used[0].rss, used[0].cpu, used[0].size, ratios)
	return nil
}

// used measures a machine's daemon over a period, at whose start its CPU time was before.
func (c *command) used(
	ctx context.Context, o contestant, before, in time.Duration,
) (d daemon, err error) {
	after, err := c.cpu(ctx, o.machine)
	if err != nil {
		return daemon{}, err
	}
	d.cpu = 100 * (after - before).Seconds() / in.Seconds()
	if d.rss, err = c.memory(ctx, o.machine); err != nil {
		return daemon{}, err
	}
	info, err := os.Stat(o.program)
	if err != nil {
		return daemon{}, err
	}
	d.size = float64(info.Size()) / (1 << 20)
	return d, nil
}

// watch configures a machine with a file and starts the daemon, which joins it and checks the node.
func (c *command) watch(ctx context.Context, m lab.Machine, program string) error {
	if err := c.lab.Equip(ctx, m, program, c.versions); err != nil {
		return err
	}
	_, err := c.lab.Output(ctx, m, "systemctl", "enable", "--now", agentService)
	return err
}

// rest is the pause between the daemon's join and the measurement.
const rest = time.Minute

// agentService is the daemon's unit.
const agentService = "aks-flex-node-agent"

// keepsWatch waits until the daemon has checked the node once. The join continues for some seconds
// after the Node is Ready.
func (c *command) keepsWatch(ctx context.Context, m lab.Machine) error {
	const wait = `for i in {1..180}; do [ -e /run/aks-flex-node/status.json ] && exit; sleep 1; done
echo the daemon has not checked the node within three minutes >&2; exit 1`
	_, err := c.lab.Output(ctx, m, "bash", "-c", wait)
	return err
}

// ofDaemon runs a script in a machine with the daemon's process ID in $pid.
func (c *command) ofDaemon(ctx context.Context, m lab.Machine, script string) (string, error) {
	pid := "pid=$(systemctl show -p MainPID --value " + agentService + "); "
	return c.lab.Output(ctx, m, "bash", "-c", pid+script)
}

// memory returns the daemon's RSS in MiB.
func (c *command) memory(ctx context.Context, m lab.Machine) (float64, error) {
	rss, err := c.ofDaemon(ctx, m, "awk '/VmRSS/{print $2}' /proc/$pid/status")
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseFloat(strings.TrimSpace(rss), 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read the daemon's memory: %w", err)
	}
	return kib / 1024, nil
}

// cpu returns the daemon's CPU time, user and system. It uses only a few clock ticks per minute, so
// the time is read in nanoseconds (Documentation/scheduler/sched-stats.rst), a line per thread. It
// is summed here because some awks cannot exceed 2^31, which is two seconds.
func (c *command) cpu(ctx context.Context, m lab.Machine) (time.Duration, error) {
	out, err := c.ofDaemon(ctx, m, "cat /proc/$pid/task/*/schedstat")
	if err != nil {
		return 0, err
	}
	var used time.Duration
	for line := range strings.Lines(out) {
		first, _, _ := strings.Cut(line, " ")
		nanoseconds, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read the daemon's time: %w", err)
		}
		used += time.Duration(nanoseconds)
	}
	return used, nil
}

// tokenRuns is the number of token requests.
const tokenRuns = 50

// benchToken measures whole processes, as kubelet starts them, with a cached token. The time
// includes entering the machine, which is measured with `true`.
func (c *command) benchToken(ctx context.Context, name string) (err error) {
	if name != "" && c.against != "" {
		return errors.New("cannot compare on an existing node: omit NODE, " +
			"and both programs get a new machine")
	}
	if name != "" {
		return c.compareTokens(ctx, []string{name})
	}
	c.lab.WithAzure = true
	if err := c.start(ctx, 0); err != nil {
		return err
	}
	equip := func(m lab.Machine, program string) error { return c.joinWithToken(ctx, m, program) }
	list, end, err := c.contestants(ctx, "bench-token", equip)
	if err != nil {
		return err
	}
	nodes := []string{list[0].machine.Name}
	if len(list) == 2 {
		nodes = append(nodes, list[1].machine.Name)
	}
	return errors.Join(c.compareTokens(ctx, nodes), end())
}

// compareTokens measures a node, or two at the same time.
func (c *command) compareTokens(ctx context.Context, nodes []string) error {
	var list []lab.Machine
	for _, name := range nodes {
		m, err := c.lab.Machine(name)
		if err != nil {
			return err
		}
		list = append(list, m)
	}
	var entering []float64
	times := make([][]float64, len(list))
	for range tokenRuns {
		ms, err := c.timeProcess(ctx, list[0], "true")
		if err != nil {
			return err
		}
		entering = append(entering, ms)
		for i, m := range list {
			ms, err := c.timeProcess(ctx, m, "aks-flex-node", "token")
			if err != nil {
				return err
			}
			times[i] = append(times[i], ms)
		}
	}
	ratios, enter := "", median(entering)
	if len(list) == 2 {
		ratios = fmt.Sprintf(" wall/against=%.2f own/against=%.2f",
			median(times[0])/median(times[1]), (median(times[0])-enter)/(median(times[1])-enter))
	}
	fmt.Printf("token wall_ms=%.1f entering_ms=%.1f%s\n", median(times[0]), enter, ratios)
	return nil
}

// joinWithToken joins a machine with a service principal whose token is kubelet's credential.
func (c *command) joinWithToken(ctx context.Context, m lab.Machine, program string) error {
	azure, err := c.lab.Identify(ctx, m, "servicePrincipal")
	if err != nil {
		return err
	}
	azure["kubeletCredential"] = "token"
	config, err := c.lab.Config(ctx, m, c.versions, azure)
	if err != nil {
		return err
	}
	if err := c.lab.Prepare(ctx, m, program, config); err != nil {
		return err
	}
	_, err = c.lab.Output(ctx, m, "aks-flex-node", "bootstrap")
	return err
}

// timeProcess runs a program in a machine and returns its time in ms. Its peak memory is not known:
// the kernel counts at least that of the parent (getrusage(2)), and flexlab's is larger.
func (c *command) timeProcess(
	ctx context.Context, m lab.Machine, argv ...string,
) (ms float64, err error) {
	cmd, err := c.lab.Command(ctx, m, argv...)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("cannot run %s in %s: %w", argv[0], m.Name, err)
	}
	return float64(time.Since(began).Microseconds()) / 1000, nil
}
