package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/node/cistest"
	"github.com/Azure/AKSFlexNode/lab"
)

// cis checks a joined machine against the CIS Kubernetes Benchmark, like a scanner without
// settings. Warnings are explained in docs/explanation/security.md.
func cis(t *testing.T, m lab.Machine) {
	results, err := cistest.Evaluate(scanned(t, m))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(cistest.Summary(results))
	documented := map[string]bool{"4.1.3": true, "4.1.4": true, "4.2.9": true}
	for _, r := range results {
		if r.Verdict != cistest.Pass && !documented[r.ID] {
			t.Errorf("%s, %s: %s", r.ID, r.Text, r.Verdict)
		}
	}
}

// scanned returns a machine as a scanner sees it.
func scanned(t *testing.T, m lab.Machine) cistest.Machine {
	t.Helper()
	ps, code := inside(t, m, "ps", "-ww", "-C", "kubelet", "-o", "args=")
	if code != 0 || !strings.Contains(ps, "--config=") {
		t.Fatalf("kubelet does not run: %s", ps)
	}
	return cistest.Machine{Kubelet: ps, File: func(path string) (cistest.File, bool) {
		path = filepath.Join(m.Root, path)
		info, err := os.Stat(path)
		if err != nil {
			return cistest.File{}, false
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		return cistest.File{
			Mode: info.Mode(), UID: int(st.Uid), GID: int(st.Gid), Content: string(text),
		}, true
	}}
}
