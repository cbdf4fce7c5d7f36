// Package e2e runs the real command on real machines in the lab, with real systemd, containerd,
// kubelet and API server. It needs root on Linux; without, test/run reports that it is skipped.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/component"
)

// bench is the lab that all tests share.
var bench *lab.Lab

// agent is the program under test.
var agent string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: the laboratory makes machines and networks, so it needs root")
		return 0
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	agent = filepath.Join(bin, "aks-flex-node")
	began := time.Now()
	bench, err = lab.New(filepath.Join(bin, "flexlab"), func(format string, args ...any) {
		fmt.Printf("%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	})
	if err == nil {
		err = start(context.Background())
	}
	if errors.Is(err, errUsed) {
		fmt.Println("cannot test:", err)
		return 1
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Println("cannot start the laboratory:", err)
	}
	if dir := os.Getenv("FLEXNODE_RECORD"); dir != "" { // test/run replays it
		text, err := os.ReadFile(bench.Exchanges())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "e2e.jsonl"), text, 0o600)
		}
		if err != nil {
			fmt.Println("cannot keep what the resource provider was asked:", err)
			code = 1
		}
	}
	if os.Getenv("KEEP_LAB") == "" {
		if err := bench.Down(context.Background()); err != nil {
			fmt.Println("cannot stop the laboratory:", err)
			return 1
		}
	}
	return code
}

// long reports whether the long forms of the tests were requested (test/long).
func long() bool { return os.Getenv("LONG") != "" }

// start starts the lab. One that runs already may belong to another process: it is used and kept
// with KEEP_LAB, replaced with FLEXLAB_REPLACE=1, and otherwise left alone.
func start(ctx context.Context) error {
	running, err := bench.Running()
	if err != nil {
		return err
	}
	switch {
	case len(running) == 0 || os.Getenv("FLEXLAB_REPLACE") == "1":
		if err := bench.Down(ctx); err != nil {
			return err
		}
		bench.WithIPv6 = lab.BoxHasIPv6()
	case os.Getenv("KEEP_LAB") == "":
		return errUsed
	}
	for _, v := range []lab.Versions{lab.Newest, lab.Oldest, lab.Former} {
		if err := bench.Build(ctx, v); err != nil {
			return err
		}
	}
	for _, name := range []string{component.Helm, component.KubernetesTests} {
		if _, err := bench.Component(ctx, name); err != nil {
			return err
		}
	}
	if err := bench.Up(ctx); err != nil {
		return err
	}
	bench.Replicas = 1 // this starts Azure too, also in a lab that runs without
	return bench.Up(ctx)
}

// errUsed is the error if the lab may belong to another process.
var errUsed = errors.New("a laboratory is running here; stop it with `bin/flexlab down`, have " +
	"it replaced with FLEXLAB_REPLACE=1, or use it with KEEP_LAB=1")

// machine adds a machine for a test, with the agent and a configuration.
func machine(t *testing.T, name string, change ...func(map[string]any)) lab.Machine {
	t.Helper()
	m := bareMachine(t, name)
	configure(t, m, lab.Newest, change...)
	return m
}

// bareMachine adds a machine for a test, with nothing of ours.
func bareMachine(t *testing.T, name string, packages ...string) lab.Machine {
	t.Helper()
	m, err := bench.AddMachine(t.Context(), name, packages...)
	if err != nil {
		t.Fatal(err)
	}
	dispose(t, m)
	return m
}

// dispose removes a machine at the end of a test, and logs its journal if the test has failed.
func dispose(t *testing.T, m lab.Machine) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := bench.Output(context.Background(), m, "journalctl", "--no-pager", "-n", "60")
			t.Logf("journal of %s:\n%s", m.Name, out)
		}
		if os.Getenv("KEEP_LAB") == "" {
			if err := bench.RemoveMachine(context.Background(), m.Name); err != nil {
				t.Error(err)
			}
			_, _ = bench.Kubectl(context.Background(), "", "delete", "node", m.Name, "--ignore-not-found")
		}
	})
}

// configure writes a machine's configuration with a new token.
func configure(t *testing.T, m lab.Machine, v lab.Versions, change ...func(map[string]any)) {
	t.Helper()
	configureAs(t, m, v, "bootstrapToken", change...)
}

// configureAs writes the configuration of a machine that joins in one of the lab's ways.
func configureAs(t *testing.T, m lab.Machine, v lab.Versions, auth string,
	change ...func(map[string]any)) {
	t.Helper()
	azure, err := bench.Identify(t.Context(), m, auth)
	if err != nil {
		t.Fatal(err)
	}
	config, err := bench.Config(t.Context(), m, v, azure)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(config)
	}
	if err := bench.Prepare(t.Context(), m, agent, config); err != nil {
		t.Fatal(err)
	}
}

// flex runs aks-flex-node on a machine and returns its output and exit code.
func flex(t *testing.T, m lab.Machine, args ...string) (string, int) {
	t.Helper()
	return inside(t, m, append([]string{"aks-flex-node"}, args...)...)
}

// inside runs a command on a machine and returns its output and exit code.
func inside(t *testing.T, m lab.Machine, argv ...string) (string, int) {
	t.Helper()
	cmd, err := bench.Command(t.Context(), m, argv...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must runs aks-flex-node and fails the test unless it exits with 0. It waits for the end of the
// daemon's work, as the program asks.
func must(t *testing.T, m lab.Machine, args ...string) string {
	t.Helper()
	out, code := "", 0
	eventually(t, "the end of the daemon's work", func() bool {
		out, code = flex(t, m, args...)
		return !strings.Contains(out, "cannot start: `aks-flex-node agent`")
	})
	if code != 0 {
		t.Fatalf("aks-flex-node %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}
