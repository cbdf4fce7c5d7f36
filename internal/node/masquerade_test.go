package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// The kernel takes the rules, again and again, and in both families; what they do is what the
// unit's commands made of them.
func TestMasqueradeRules(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("iptables needs root")
	}
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		t.Skip("there is no iptables")
	}
	runtime.LockOSThread() // the thread ends with the test, and its network namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	masquerades(t, nil, 4)
	masquerades(t, []string{"10.244.0.0/16", "fd00:10:244::/48"}, 5)
}

// masquerades loads the rules of a node twice, and counts those of each family.
func masquerades(t *testing.T, direct []string, rulesOfChain int) {
	t.Helper()
	c, f, b := base(), facts(), bindings()
	c.CNI.NonMasqueradeCIDRs = direct
	joined(&b)
	b.PodCIDRs = []string{"10.244.3.0/24", "fd00:10:244:3::/64"}
	d := Bind(Render(c, f), b)
	for suffix, tool := range map[string]string{"": "iptables", "6": "ip6tables"} {
		unit := find(t, d, state.PathKey(unitDir+"/aks-flex-node-masquerade"+suffix+".service"))
		rules := find(t, d, state.PathKey(OptDir+"/masquerade"+suffix+".rules"))
		file := filepath.Join(t.TempDir(), "rules")
		content := rules.Resource.(state.File).Content
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			runUnit(t, unit.Resource.(state.File).Content, rules.Resource.(state.File).Path, file)
		}
		out, err := exec.Command(tool, "-t", "nat", "-S").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %s", err, out)
		}
		if n := strings.Count(string(out), "-j "+masqueradeChain); n != 1 {
			t.Errorf("%s has %d jumps:\n%s", tool, n, out)
		}
		if n := strings.Count(string(out), "-A "+masqueradeChain); n != rulesOfChain {
			t.Errorf("%s has %d rules:\n%s", tool, n, out)
		}
	}
}

// runUnit runs the commands of a unit, with another file in the place of its own.
func runUnit(t *testing.T, unit, path, file string) {
	t.Helper()
	for line := range strings.Lines(unit) {
		command, ok := strings.CutPrefix(line, "ExecStartPre=-")
		if !ok {
			command, ok = strings.CutPrefix(line, "ExecStart=")
		}
		if !ok {
			continue
		}
		command = strings.ReplaceAll(strings.TrimSpace(command), path, file)
		out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
		if err != nil && strings.HasPrefix(line, "ExecStart=") {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
}
