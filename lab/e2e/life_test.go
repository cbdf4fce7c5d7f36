package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/lab"
)

// A machine is planned, joins as planned, runs a pod, and is restored.
func TestLife(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := machine(t, "life-1")
	for path, text := range map[string]string{
		"/opt/cni/bin/foreign":                           "a foreign plugin",
		"/etc/containerd/certs.d/example.org/hosts.toml": "server = \"https://example.org\"\n",
		"/etc/sysctl.d/10-foreign.conf":                  "# foreign\n",
	} {
		if err := bench.Write(m, path, 0o640, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	inside(t, m, "sysctl", "-qw", "kernel.panic=5", "vm.overcommit_memory=0", "net.ipv4.ip_forward=0")
	before := snapshot(ctx, t, m)

	planned, err := bench.Output(ctx, m, "aks-flex-node", "plan", "--output", "json")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
		t.Fatalf("plan on a fresh machine: %v, want exit code 2\n%s", err, planned)
	}
	same(t, before, snapshot(ctx, t, m))
	if _, err := os.Stat(filepath.Join(m.Root, lab.OwnLog)); err == nil {
		t.Error("plan has made a log")
	}
	var plan struct {
		Changes []struct{ Step, Key, Action string }
	}
	if err := json.Unmarshal([]byte(planned), &plan); err != nil {
		t.Fatalf("plan is not JSON: %v\n%s", err, planned)
	}

	must(t, m, "bootstrap")
	log := logOf(t, m)
	var want []string
	for _, c := range plan.Changes {
		want = append(want, c.Action)
	}
	if got := logged(log); strings.Join(want, "\n") != strings.Join(got, "\n") {
		t.Errorf("bootstrap did not do what plan said.\nplan:\n%s\nbootstrap:\n%s",
			strings.Join(want, "\n"), strings.Join(got, "\n"))
	}

	if _, err := bench.CheckPod(ctx, "pod-1", m.Name); err != nil {
		t.Fatal(err)
	}
	proxied(t, m) // its remains must be removed too

	t.Run("again", func(t *testing.T) {
		again(t, m.Root, func() string { return must(t, m, "bootstrap", "--output", "json") })
	})

	// A foreign directory mounted below kubelet's is neither followed nor deleted.
	precious := filepath.Join(m.Root, "srv/precious")
	if err := os.MkdirAll(precious, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(precious, "data"), []byte("foreign"), 0o644); err != nil {
		t.Fatal(err)
	}
	inside(t, m, "mkdir", "-p", "/var/lib/kubelet/foreign")
	inside(t, m, "mount", "--bind", "/srv/precious", "/var/lib/kubelet/foreign")
	out, code := flex(t, m, "unbootstrap", "--yes")
	if code != 1 || !strings.Contains(out, "/var/lib/kubelet/foreign") ||
		!strings.Contains(out, "umount") {
		t.Errorf("unbootstrap with a foreign mount: exit code %d, want 1 and a word on the mount\n%s",
			code, out)
	}
	if data, err := os.ReadFile(filepath.Join(precious, "data")); err != nil ||
		string(data) != "foreign" {
		t.Errorf("what is behind the foreign mount was touched: %v %q", err, data)
	}
	inside(t, m, "umount", "/var/lib/kubelet/foreign")
	must(t, m, "unbootstrap", "--yes")
	if err := os.RemoveAll(precious); err != nil {
		t.Fatal(err)
	}
	same(t, before, snapshot(ctx, t, m))
	if left := logOf(t, m); !strings.HasPrefix(left, log) || len(left) == len(log) {
		t.Errorf("the log does not tell the whole life: %s", left)
	}
	if out, err := bench.Kubectl(ctx, "", "get", "node", m.Name, "--ignore-not-found"); err != nil ||
		out != "" {
		t.Errorf("the Node is still there: %v %s", err, out)
	}
}

// again checks that a second bootstrap is a no-op: without writes, and fast.
func again(t *testing.T, root string, bootstrap func() string) {
	before := times(t, root)
	var result struct {
		Changes int
		Seconds float64
	}
	out := bootstrap()
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("second bootstrap: %.3f s, %d changes", result.Seconds, result.Changes)
	if result.Changes != 0 {
		t.Errorf("the second bootstrap made %d changes", result.Changes)
	}
	for path, when := range times(t, root) {
		if before[path] != when {
			t.Errorf("the second bootstrap wrote %s", path)
		}
	}
}

// times returns the change times of all files that could be ours.
func times(t *testing.T, root string) map[string]unix.Timespec {
	t.Helper()
	found := map[string]unix.Timespec{}
	for _, dir := range []string{"etc", "opt", "usr/local", "var/lib/aks-flex-node", "var/lib/cni/x"} {
		err := filepath.WalkDir(filepath.Join(root, dir),
			func(path string, _ os.DirEntry, err error) error {
				if err != nil {
					return nil
				}
				var st unix.Stat_t
				if err := unix.Lstat(path, &st); err == nil {
					found[path] = st.Ctim
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// logged returns the changes in a log.
func logged(log string) []string {
	var changes []string
	for line := range strings.Lines(log) {
		_, change, ok := strings.Cut(strings.TrimSpace(line), " change=")
		if ok && strings.Contains(line, "msg=changed") {
			changes = append(changes, strings.Trim(change, `"`))
		}
	}
	return changes
}
