package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// analyze runs systemd-analyze on a unit, with an existing program in place of its own, and returns
// the output.
func analyze(t *testing.T, name, unit, program string, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	if strings.Count(unit, "ExecStart="+program+" ") != 1 {
		t.Fatalf("%s does not start %s once", name, program)
	}
	file := filepath.Join(t.TempDir(), name)
	unit = strings.ReplaceAll(unit, "ExecStart="+program, "ExecStart=/bin/true")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("systemd-analyze", append(args, file)...).CombinedOutput()
	return string(said), err
}

// systemd accepts every line of the units. It only warns about settings that it does not know.
func TestUnitsAreUnderstood(t *testing.T) {
	for _, u := range []struct{ name, unit, program string }{
		{"aks-flex-node-agent.service", unit(AgentUnit), "/usr/local/bin/aks-flex-node"},
		{"flexnode-rp.service", unit("flexnode-rp.service"), "/usr/local/bin/flexnode-rp"},
	} {
		t.Run(u.name, func(t *testing.T) {
			said, err := analyze(t, u.name, u.unit, u.program, "verify")
			if err != nil || strings.TrimSpace(said) != "" {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}

// The exposure level that systemd computes is limited, in tenths. The agent mounts and runs
// programs as root, so its level is high.
func TestUnitsAreClosed(t *testing.T) {
	for _, u := range []struct{ name, unit, program, most string }{
		{"aks-flex-node-agent.service", unit(AgentUnit), "/usr/local/bin/aks-flex-node", "66"},
		{"flexnode-rp.service", unit("flexnode-rp.service"), "/usr/local/bin/flexnode-rp", "20"},
	} {
		said, err := analyze(t, u.name, u.unit, u.program,
			"security", "--offline=true", "--threshold="+u.most, "--no-pager")
		_, score, told := strings.Cut(said, "Overall exposure level for "+u.name+": ")
		if err != nil || !told {
			t.Errorf("%v:\n%s", err, said)
		}
		t.Logf("%s: %s", u.name, strings.TrimSpace(score))
	}
}

// Start and stop have time limits that fit the program: it drains, finishes requests (30 s) and
// writes its store. The user exists, and the keys are where that user cannot change them.
func TestProviderUnit(t *testing.T) {
	for name, want := range map[string]string{
		"Type": "notify", "WatchdogSec": "1min", "TimeoutStopSec": "90", "TimeoutStartSec": "15min",
		"Restart": "always", "StartLimitIntervalSec": "0", "UMask": "0077", "LimitCORE": "0",
		"User": "flexnode-rp", "Group": "flexnode-rp", "StateDirectory": "flexnode-rp",
		"LoadCredential": "keys.json:/etc/flexnode-rp/keys.json", "CapabilityBoundingSet": "",
	} {
		if got := settingOf(unit("flexnode-rp.service"), name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	var user []string
	for line := range strings.Lines(text("sysusers.d/flexnode-rp.conf")) {
		if !strings.HasPrefix(line, "#") {
			user = strings.Fields(line)
		}
	}
	if len(user) < 3 || user[0] != "u" || user[1] != "flexnode-rp" || user[2] != "-" {
		t.Errorf("the user is %v", user)
	}
}
