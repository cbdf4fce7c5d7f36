package stories

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// A bootstrap from a program which others can change is refused, with the command to cure it,
// before any change: root and kubelet would continue to run that program. After the cure it joins.
// The same rule holds for a change of a running node.
func TestProgramOfOthers(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	if os.Geteuid() == 0 { // for root, nothing below /tmp is safe
		var err error
		if dir, err = os.MkdirTemp("/run", "aks-flex-node-story-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	w.program, w.trusted = filepath.Join(dir, "aks-flex-node"), config.Trusted
	if err := os.WriteFile(w.program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mode := func(mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(w.program, mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := func() {
		t.Helper()
		mode(0o775)
		before := w.tree()
		_, err := w.bootstrap()
		var problem *health.Error
		if !errors.As(err, &problem) ||
			!strings.Contains(err.Error(), "can be changed by its group (mode 0775)") ||
			!strings.Contains(err.Error(), "run `chmod go-w "+w.program+"`") {
			t.Errorf("a program of others: %v", err)
		}
		w.same(before)
		mode(0o755)
	}
	refused()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(func(c map[string]any) {
		c["node"].(map[string]any)["maxPods"] = 42
	})
	refused()
	if err := w.unbootstrap(); err != nil {
		t.Error(err)
	}
}
