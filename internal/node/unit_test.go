package node

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// settings are the values that a unit's text gives a setting.
func settings(unit, name string) []string {
	var values []string
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// A reload of a firewall may remove all rules: ours are loaded again after it, as after a restart.
func TestRulesAreReloaded(t *testing.T) {
	for _, unit := range []string{metadataService, masqueradeService} {
		firewalls, from := settings(unit, "PartOf"), settings(unit, "ReloadPropagatedFrom")
		start := slices.Concat(settings(unit, "ExecStartPre"), settings(unit, "ExecStart"))
		if reload := settings(unit, "ExecReload"); !slices.Equal(reload, start) ||
			!slices.Equal(from, firewalls) || len(from) == 0 {
			t.Errorf("a reload of %v runs %v, a start %v", from, reload, start)
		}
	}
}

// What holds credentials in memory leaves no core dump. Containers may raise their own limit.
func TestNoCoreDumps(t *testing.T) {
	for _, u := range []struct{ name, text, limit string }{
		{ContainerdUnit, containerdService, "0:infinity"},
		{KubeletUnit, kubeletService, "0"},
		{NPDUnit, npdService, "0"},
	} {
		if got := settings(u.text, "LimitCORE"); len(got) != 1 || got[0] != u.limit {
			t.Errorf("%s: LimitCORE is %v, want %s", u.name, got, u.limit)
		}
	}
}

// After a power failure, files that kubelet did not sync may be empty. Kubelet would not start with
// them; without them it makes its own files again, or the node joins again.
func TestEmptyFilesOfKubelet(t *testing.T) {
	dir := t.TempDir()
	files := map[string]struct {
		content string
		stays   bool
	}{
		"kubeconfig": {"", false}, "config.yaml": {"", true},
		"pki/kubelet.crt": {"", false}, "pki/kubelet.key": {"key", true},
	}
	for name, f := range files {
		file := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(f.content), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range settings(fill(kubeletService, "{{KubeletDir}}", dir), "ExecStartPre") {
		command := strings.Fields(strings.TrimPrefix(line, "-"))
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", line, err, out)
		}
	}
	for name, f := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != f.stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The node-problem-detector is kept from what it needs not, and has what it needs: the kernel's
// log, and, for the program that makes its credential, a directory for tokens.
func TestDetectorIsConfined(t *testing.T) {
	for name, want := range map[string]string{
		"NoNewPrivileges": "yes", "ProtectSystem": "strict", "DevicePolicy": "closed",
		"DeviceAllow": "/dev/kmsg r", "CapabilityBoundingSet": "CAP_SYSLOG CAP_DAC_READ_SEARCH",
		"RuntimeDirectory": "aks-flex-node", "RuntimeDirectoryMode": "0700",
		"RuntimeDirectoryPreserve": "yes",
	} {
		if got := settings(npdService, name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	for _, name := range []string{"PrivateDevices", "ProtectKernelLogs"} { // without the kernel's log
		if got := settings(npdService, name); got != nil {
			t.Errorf("%s is %v", name, got)
		}
	}
}

// systemd understands the detector's unit, and the exposure that it computes is bounded, in tenths.
func TestDetectorUnitIsClosed(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	file := filepath.Join(t.TempDir(), NPDUnit)
	start := regexp.MustCompile(`(?s)ExecStart=.*?\nRestart=`)
	unit := start.ReplaceAllString(npdService, "ExecStart=/bin/true\nRestart=")
	unit = strings.ReplaceAll(unit, "{{Credential}}", "")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command("systemd-analyze", "verify", file).CombinedOutput()
	if text := strings.TrimSpace(string(said)); err != nil || text != "" {
		t.Errorf("%v: %s", err, text)
	}
	said, err = exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=35",
		"--no-pager", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, said)
	}
}
