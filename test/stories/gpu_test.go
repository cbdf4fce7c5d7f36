package stories

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// NVIDIA's runtime, installed by the owner before or after the join, is a handler of containerd as
// long as it is installed.
func TestNvidiaRuntime(t *testing.T) {
	w := newWorld(t)
	const runtime, file = "/usr/bin/nvidia-container-runtime", "/etc/containerd/config.toml"
	w.write("/proc/sys/kernel/hostname", "edge-1\n")
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	handled := func(want bool) {
		t.Helper()
		if got := strings.Contains(w.read(file), `BinaryName = "`+runtime+`"`); got != want {
			t.Errorf("containerd knows the runtime: %v, want %v", got, want)
		}
	}
	handled(false)
	w.write(runtime, "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(w.root, runtime), 0o755); err != nil {
		t.Fatal(err)
	}
	kubelet := w.pid("kubelet.service")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	handled(true)
	if w.pid("kubelet.service") != kubelet {
		t.Error("kubelet was restarted")
	}
	w.steady("with the runtime")
	if err := os.RemoveAll(filepath.Join(w.root, "/usr/bin")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	handled(false)
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// pid returns the process of a unit.
func (w *world) pid(unit string) int {
	is, err := w.systemd.Unit(context.Background(), unit, true)
	if err != nil {
		w.t.Fatal(err)
	}
	return is.MainPID
}
