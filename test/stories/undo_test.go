package stories

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Others' changes since the join are not lost when the machine leaves: copies of files and links
// are kept and named; what cannot be copied is left unchanged and named.
func TestLeaveKeepsWhatOthersChanged(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	const kept = ".aks-flex-node-kept"
	w.remove(t, "/usr/local/bin/kubectl") // a link of ours, over a file of the owner
	w.write("/usr/local/bin/kubectl", "a newer kubectl of the owner")
	w.write("/etc/kubernetes/aks-flex-node-registration.env", "the owner's kubelet.yaml")
	w.write("/proc/sys/vm/overcommit_memory", "2\n")
	if err := w.systemd.Stop(t.Context(), "node-problem-detector.service"); err != nil {
		t.Fatal(err)
	}
	result, err := w.leave(nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(result.Kept)
	copies := []string{
		"/etc/kubernetes/aks-flex-node-registration.env" + kept,
		"/usr/local/bin/kubectl" + kept,
	}
	if diff := cmp.Diff(copies, result.Kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"sysctl:vm.overcommit_memory"}, result.Left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		"/usr/local/bin/kubectl":                                "an older kubectl of the owner",
		"/usr/local/bin/kubectl" + kept:                         "a newer kubectl of the owner",
		"/etc/kubernetes/aks-flex-node-registration.env" + kept: "the owner's kubelet.yaml",
		"/proc/sys/vm/overcommit_memory":                        "2",
		"/proc/sys/net/ipv4/ip_forward":                         "0",
		"/etc/sysctl.d/10-theirs.conf":                          "# theirs",
		"/etc/systemd/system/swap.img.swap.d/theirs.conf":       "",
	} {
		if is := strings.TrimSpace(w.read(path)); is != want {
			t.Errorf("%s is %q, want %q", path, is, want)
		}
	}
	w.remove(
		t,
		"/usr/local/bin/kubectl"+kept,
		"/etc/kubernetes/aks-flex-node-registration.env"+kept,
		"/etc/kubernetes",
	)
	w.write("/proc/sys/vm/overcommit_memory", "0\n")
	w.same(before)
	if log := w.log.String(); strings.Contains(log, "cannot") {
		t.Errorf("the log is\n%s", log)
	}
}

// A kernel parameter that the owner's files set by now, which was no change, keeps their value,
// also if the undo fails first.
func TestLeaveKeepsTheOwnersParameters(t *testing.T) {
	const program, ours = "/usr/lib/systemd/systemd-sysctl", "/etc/sysctl.d/999-aks-flex-node.conf"
	const file = "/etc/tmpfiles.d/aks-flex-node.conf"
	for _, fails := range []bool{false, true} {
		w := newWorld(t)
		w.write(program, fmt.Sprintf("#!/bin/sh\ncd %q || exit\n[ ! -e .%s ] || exit\n"+
			"echo $* > ran\necho 1 > proc/sys/net/ipv4/ip_forward\n", w.root, ours))
		if err := os.Chmod(filepath.Join(w.root, program), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if fails {
			w.undoFailsAt(t, file)
		} else {
			w.write("/proc/sys/vm/overcommit_memory", "2\n")
		}
		if err := w.unbootstrap(); err != nil {
			t.Fatal(err)
		}
		ran := w.read("/ran")
		if !strings.Contains(ran, "--prefix=net.ipv4.ip_forward") ||
			!strings.Contains(ran, "route_localnet") || !fails && strings.Contains(ran, "overcommit") {
			t.Errorf("fails %v: it is run for %s", fails, ran)
		}
		if is := w.read("/proc/sys/net/ipv4/ip_forward"); is != "1\n" {
			t.Errorf("fails %v: the parameter is %q", fails, is)
		}
	}
}

// Resources that a failed bootstrap had not touched yet are not its own, and are not undone later.
func TestFailedBootstrapForgetsTheRest(t *testing.T) {
	w := newWorld(t)
	w.config = w.configuration(func(c map[string]any) {
		overrides := c["artifacts"].(map[string]any)["overrides"].(map[string]any)
		overrides["runc"] = map[string]any{"sha256": strings.Repeat("0", 64)}
	})
	const mine = "/usr/local/bin/containerd"
	w.write(mine, "before")
	before := w.tree()
	if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Fatalf("the error is %v; want the digest of runc", err)
	}
	ledger := w.read("/var/lib/aks-flex-node/ledger.json")
	for path, want := range map[string]bool{
		"/etc/sysctl.d": true, mine: false, "kubelet.service": false,
	} {
		if is := strings.Contains(ledger, path); is != want {
			t.Errorf("%s is in the ledger: %v, want %v", path, is, want)
		}
	}
	w.write(mine, "after")
	result, err := w.leave(nil)
	if err != nil || len(result.Kept) > 0 || len(result.Left) > 0 {
		t.Errorf("leaving: %v, kept %v, left %v", err, result.Kept, result.Left)
	}
	if is := w.read(mine); is != "after" {
		t.Errorf("%s is %q", mine, is)
	}
	w.write(mine, "before")
	w.same(before)
}

func (w *world) remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(filepath.Join(w.root, path)); err != nil {
			t.Error(err)
		}
	}
}

// undoFailsAt lets unbootstrap fail once, at a file that is a pipe meanwhile.
func (w *world) undoFailsAt(t *testing.T, file string) {
	t.Helper()
	w.remove(t, file)
	if err := syscall.Mkfifo(w.root+file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.unbootstrap(); err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("the undo did not fail: %v", err)
	}
	w.remove(t, file)
}
