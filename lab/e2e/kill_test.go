package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// kills returns how often a command, and the daemon, are killed: $KILLS if set, else more in the
// long form.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		return n
	}
	if long() {
		return 40
	}
	return 4
}

// killed distributes the kills over machines, about ten each, as they wait most of the time.
func killed(t *testing.T, name string, test func(t *testing.T, name string, kills int)) {
	t.Parallel()
	machines := max(1, kills()/10)
	for n := range machines {
		t.Run(strconv.Itoa(n+1), func(t *testing.T) {
			t.Parallel()
			test(t, fmt.Sprintf("%s-%d", name, n+1), (kills()+n)/machines)
		})
	}
}

// After a kill at a random moment, the next run of the same command finishes. At the end the
// machine is unchanged.
func TestKill(t *testing.T) { killed(t, "kill", killCommands) }

func killCommands(t *testing.T, name string, kills int) {
	ctx := t.Context()
	m := machine(t, name)
	before := snapshot(ctx, t, m)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	joined, pods := false, 110
	hits := map[string]int{}
	for hits["all"] < kills {
		verb, what, most := []string{"bootstrap"}, "bootstrap", 2500
		switch {
		case joined && random.IntN(2) == 0:
			verb, what, most = []string{"unbootstrap", "--yes"}, "unbootstrap", 800
		case joined:
			pods++
			configure(t, m, lab.Newest,
				func(c map[string]any) { c["node"].(map[string]any)["maxPods"] = pods })
			what, most = "change of the configuration", 700
		}
		after := time.Duration(random.IntN(most)) * time.Millisecond
		killed := killAfter(t, m, after, append([]string{"aks-flex-node"}, verb...)...)
		if killed {
			hits["all"]++
			hits[what]++
		}
		t.Logf("%s killed after %s: %v", what, after, killed)
		must(t, m, verb...)
		joined = verb[0] == "bootstrap"
		if joined {
			if out, code := flex(t, m, "drift"); code != 0 {
				t.Errorf("drift after the rerun: exit code %d\n%s", code, out)
			}
		}
	}
	t.Logf("kills: %v", hits)
	if joined {
		must(t, m, "unbootstrap", "--yes")
	}
	// The configuration is the test's own and has changed since.
	same(t, without(before, "/etc/aks-flex-node/config.json"),
		without(snapshot(ctx, t, m), "/etc/aks-flex-node/config.json"))
}

// After a kill at a random moment of a join, a change, an upgrade or a rollback, systemd restarts
// the daemon, which finishes: the node has the old or the new version, and reports which.
func TestKillDaemon(t *testing.T) { killed(t, "killd", killDaemon) }

func killDaemon(t *testing.T, name string, kills int) {
	m := bareMachine(t, name)
	configure(t, m, lab.Oldest)
	fragile(t, m)
	before := snapshot(t.Context(), t, m)
	if out, code := inside(t, m, "systemctl", "enable", "--now", "aks-flex-node-agent"); code != 0 {
		t.Fatal(out)
	}
	for n := range kills {
		pods, v, bad := 80+n, killVersions(n), n%3 == 2
		was := rejections(m)
		edit(t, m, func(c map[string]any) { killChange(t, m, c, v, pods, bad) })
		after := time.Duration(rand.IntN(12000)) * time.Millisecond
		time.Sleep(after)
		out, _ := inside(t, m, "systemctl", "kill", "--signal=KILL", "aks-flex-node-agent")
		t.Logf("change to %+v with %d pods, bad: %t; killed after %s %s", v, pods, bad, after, out)
		eventually(t, "the end of the change", func() bool {
			_, err := os.Lstat(filepath.Join(m.Root, "var/lib/aks-flex-node/transition.json"))
			done := applied(m, fmt.Sprintf(`"maxPods": %d`, pods))
			if bad {
				done = rejections(m) != was
			}
			return err != nil && done
		})
		if bad && applied(m, fmt.Sprintf(`"maxPods": %d`, pods)) {
			t.Errorf("kill %d: what does not work is said to be applied", n+1)
		}
		eventually(t, "the Node", func() bool { return ready(t, m) })
		if out, code := flex(t, m, "drift"); code != 0 {
			t.Errorf("drift after kill %d: exit code %d\n%s", n+1, code, out)
		}
	}
	must(t, m, "unbootstrap", "--yes")
	same(t, without(before, lab.ConfigPath), without(snapshot(t.Context(), t, m), lab.ConfigPath))
}

// killVersions returns the versions of the n-th change: first containerd changes, then the minor
// version, with a drain, and then kubelet's patch back and forth.
func killVersions(n int) lab.Versions {
	v := lab.Newest
	switch {
	case n < 2:
		v.Kubernetes = lab.Oldest.Kubernetes
	case n%4 < 2:
		v.Kubernetes = lab.Former.Kubernetes
	}
	return v
}

// killChange edits the configuration for a change. A bad one fails because of the operator's
// drop-in.
func killChange(
	t *testing.T, m lab.Machine, c map[string]any, v lab.Versions, pods int, bad bool,
) {
	t.Helper()
	is, err := bench.Config(t.Context(), m, v, map[string]any{})
	if err != nil {
		t.Error(err)
		return
	}
	for _, name := range []string{"kubernetes", "containerd", "artifacts"} {
		c[name] = is[name]
	}
	section(c, "node")["maxPods"] = pods
	kubelet := section(c, "node", "kubelet")
	delete(kubelet, "imageGCHighThreshold")
	delete(kubelet, "imageGCLowThreshold")
	delete(section(c, "agent"), "readyTimeout")
	if bad {
		kubelet["imageGCHighThreshold"], kubelet["imageGCLowThreshold"] = 75, 60
		section(c, "agent")["readyTimeout"] = "20s"
	}
}

// rejections returns the agent's record of rejected configurations.
func rejections(m lab.Machine) string {
	text, err := os.ReadFile(filepath.Join(m.Root, "var/lib/aks-flex-node/rejected.json"))
	if err != nil {
		return ""
	}
	return string(text)
}

func without(lines []string, path string) []string {
	var rest []string
	for _, l := range lines {
		if !strings.Contains(l, path) {
			rest = append(rest, l)
		}
	}
	return rest
}

// killAfter runs a command on a machine and kills it with SIGKILL after a while. It returns false
// if the command had ended before.
func killAfter(t *testing.T, m lab.Machine, after time.Duration, argv ...string) bool {
	t.Helper()
	cmd, err := bench.Command(t.Context(), m,
		append([]string{"timeout", "--signal=KILL", strconv.FormatFloat(after.Seconds(), 'f', 3, 64)},
			argv...)...)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Run() // the exit code has the result
	return cmd.ProcessState.ExitCode() == 137 || cmd.ProcessState.ExitCode() == -1
}
