package node

import (
	"fmt"
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
// unit's commands made of them. A reload of the owner's firewall removes and adds them.
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
	list := find(t, d, state.PathKey(c.Paths.CNI.ConfDir+"/"+ConflistName)).Resource.(state.File)
	if want := fmt.Sprintf(`"ipMasq": %v,`, direct == nil); !strings.Contains(list.Content, want) {
		t.Errorf("with %v the bridge plugin has not %s:\n%s", direct, want, list.Content)
	}
	for suffix, tool := range map[string]string{"": "iptables", "6": "ip6tables"} {
		unit := find(t, d, state.PathKey(unitDir+"/aks-flex-node-masquerade"+suffix+".service"))
		rules := find(t, d, state.PathKey(OptDir+"/masquerade"+suffix+".rules"))
		file := filepath.Join(t.TempDir(), "rules")
		content := rules.Resource.(state.File).Content
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"Start", "Start", "Reload"} {
			if verb == "Reload" {
				for _, flush := range []string{"-F", "-X"} {
					if out, err := exec.Command(tool, "-t", "nat", flush).CombinedOutput(); err != nil {
						t.Fatalf("%s: %s", err, out)
					}
				}
			}
			runUnit(t, verb, unit.Resource.(state.File).Content, rules.Resource.(state.File).Path, file)
			wanted(t, tool, rulesOfChain)
		}
	}
}

// wanted fails unless the chain of pods has a number of rules and one jump leads there.
func wanted(t *testing.T, tool string, rulesOfChain int) {
	t.Helper()
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

// runUnit runs a unit's commands to start or reload, with another file in the place of its own.
func runUnit(t *testing.T, verb, unit, path, file string) {
	t.Helper()
	for line := range strings.Lines(unit) {
		name, command, _ := strings.Cut(strings.TrimSpace(line), "=")
		if !strings.HasPrefix(name, "Exec"+verb) {
			continue
		}
		command, mayFail := strings.CutPrefix(strings.ReplaceAll(command, path, file), "-")
		if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil && !mayFail {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
}
