package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// snapshot describes a whole machine in lines.
func snapshot(ctx context.Context, t *testing.T, m lab.Machine) []string {
	t.Helper()
	lines, err := bench.Snapshot(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// tables returns a machine's nftables tables.
func tables(t *testing.T, m lab.Machine) []lab.Table {
	t.Helper()
	list, err := bench.Tables(m)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// proxied waits until kube-proxy, which runs as a pod, has created its tables on a machine.
func proxied(t *testing.T, m lab.Machine) {
	t.Helper()
	eventually(t, "kube-proxy", func() bool {
		return slices.ContainsFunc(tables(t, m), func(table lab.Table) bool {
			return table.Name == "kube-proxy"
		})
	})
}

// logOf returns the agent's log on a machine.
func logOf(t *testing.T, m lab.Machine) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(m.Root, lab.OwnLog, "aks-flex-node.log"))
	if err != nil {
		t.Error(err)
	}
	return string(log)
}

// same fails the test if a machine has changed.
func same(t *testing.T, before, after []string) {
	t.Helper()
	if lines := lab.Differences(before, after); len(lines) > 0 {
		t.Errorf("the machine is not as it was (-before +after):\n%s", strings.Join(lines, "\n"))
	}
}
