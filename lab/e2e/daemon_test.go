package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// patience is the timeout for an expected event, on a machine of any speed.
const patience = 3 * time.Minute

// eventually waits until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	within(t, patience, what, done)
}

// within waits until done returns true, up to a limit.
func within(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(limit)
	for pause := 200 * time.Millisecond; !done(); pause = min(pause*5/4, time.Second) {
		select {
		case <-deadline:
			t.Fatalf("%s did not come within %s", what, limit)
		case <-time.After(pause): // many tests wait at once, and each poll takes CPU time
		}
	}
}

// A node changes to newer versions of containerd and, after a drain, of kubelet. It keeps the
// previous configuration, and unbootstrap restores the machine.
func TestVersions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m, err := bench.AddMachine(ctx, "version-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bench.RemoveMachine(ctx, m.Name); err != nil && os.Getenv("KEEP_LAB") == "" {
			t.Error(err)
		}
	})
	configure(t, m, lab.Oldest)
	before := snapshot(ctx, t, m)
	must(t, m, "bootstrap")
	if _, err := bench.CheckPod(ctx, "old-pod", m.Name); err != nil {
		t.Fatal(err)
	}

	configure(t, m, lab.Newest, func(c map[string]any) {
		section(c, "agent", "upgradePolicy", "drainOptions")["force"] = true
	})
	planned, _ := flex(t, m, "plan")
	must(t, m, "bootstrap")
	out, err := bench.Kubectl(ctx, "", "get", "node", m.Name, "-o",
		"jsonpath={.status.nodeInfo.kubeletVersion} {.status.nodeInfo.containerRuntimeVersion}")
	if want := "v" + lab.Newest.Kubernetes + " containerd://" + lab.Newest.Containerd; err != nil ||
		out != want {
		t.Errorf("the Node runs %q, want %q: %v", out, want, err)
	}
	// Kubernetes supports a new minor version of kubelet only on a drained node: the pod, which has no
	// controller, is gone, and the Node accepts new ones.
	if !strings.Contains(planned, "drain") {
		t.Errorf("the plan does not say that it drains: %s", planned)
	}
	if out, err := bench.Kubectl(ctx, "", "get", "pod", "old-pod", "--ignore-not-found"); err != nil ||
		out != "" {
		t.Errorf("the pod was not drained: %s (%v)", out, err)
	}
	if _, err := bench.CheckPod(ctx, "new-pod", m.Name); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(m.Root,
		"var/lib/aks-flex-node/previous-config.json")); err != nil {
		t.Errorf("the previous configuration is not kept: %v", err)
	}
	must(t, m, "unbootstrap", "--yes")
	same(t, without(before, lab.ConfigPath), without(snapshot(ctx, t, m), lab.ConfigPath))
}

// joinsInSecret joins a machine. Meanwhile and afterwards its token is in no command line,
// environment, log, or file that others can read.
func joinsInSecret(t *testing.T, m lab.Machine) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(m.Root, lab.ConfigPath))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(config), `"token": "`)
	token, _, _ := strings.Cut(rest, `"`)
	_, secret, ok := strings.Cut(token, ".")
	if !ok {
		t.Fatalf("no token in the configuration: %s", config)
	}
	stop := watchProcesses(t, m, secret)
	out := must(t, m, "bootstrap")
	stop()
	journal, _ := inside(t, m, "journalctl", "--no-pager")
	status, _ := flex(t, m, "status", "--output", "json")
	for name, text := range map[string]string{"the output": out, "the journal": journal,
		"the status": status} {
		if strings.Contains(text, secret) {
			t.Errorf("the token is in %s", name)
		}
	}
	for _, line := range holders(t, m) {
		if !strings.HasPrefix(line, "600 ") {
			t.Errorf("the token is in a file that others can read: %s", line)
		}
		if !strings.Contains(line, lab.ConfigPath) {
			t.Errorf("the token is still on disk after the join: %s", line)
		}
	}
}

// watchProcesses searches the arguments and the environment of every process on a machine for a
// secret until stop is called.
func watchProcesses(t *testing.T, m lab.Machine, secret string) (stop func()) {
	t.Helper()
	if err := bench.Write(m, "/root/pattern", 0o600, []byte(secret)); err != nil {
		t.Fatal(err)
	}
	// grep reads the pattern from a file, so that it does not match itself; comm is read at once,
	// before the process exits.
	const look = `cd /proc
while [ -e /root/pattern ]; do
  for f in $(grep -lasF -f /root/pattern [0-9]*/cmdline [0-9]*/environ 2>/dev/null); do
    echo "$f of $(cat ${f%/*}/comm 2>/dev/null)"
  done
  sleep 0.05
done`
	watcher, err := bench.Command(t.Context(), m, "bash", "-c", look)
	if err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	watcher.Stdout = &seen
	if err := watcher.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		// this ends it
		if err := os.Rename(filepath.Join(m.Root, "root/pattern"),
			filepath.Join(m.Root, "root/.pattern")); err != nil {
			t.Error(err)
		}
		if err := watcher.Wait(); err != nil {
			t.Error(err)
		}
		if seen.Len() > 0 {
			t.Errorf("a secret is in\n%s", seen.String())
		}
	}
}

// holders returns the files of a machine that contain the secret of watchProcesses, with their
// modes.
func holders(t *testing.T, m lab.Machine) []string {
	t.Helper()
	out, _ := inside(t, m, "bash", "-c",
		`grep -rlasF -f /root/.pattern /etc /var /opt /run /root /usr/local /tmp 2>/dev/null |
			grep -v ^/root/.pattern$ | xargs -r stat -c '%a %n'`)
	return strings.Split(strings.TrimSpace(out), "\n")
}
