package packaging

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"
)

// The version is in one file, and the chart and the release notes match it.
func TestVersionIsDescribed(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	version := strings.TrimSpace(read("../VERSION"))
	for file, line := range map[string]string{
		"helm/flexnode-rp/Chart.yaml": "\nversion: " + version + "\n",
		"../CHANGELOG.md":             "\n## " + version,
	} {
		if !strings.Contains(read(file), line) {
			t.Errorf("%s lacks %q", file, line)
		}
	}
}

// setting returns all values of a setting in the agent's unit.
func setting(name string) []string { return settingOf(unit(AgentUnit), name) }

func settingOf(unit, name string) []string {
	var found []string
	lines := bufio.NewScanner(strings.NewReader(unit))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && key == name {
			found = append(found, value)
		}
	}
	return found
}

// READY does not wait for the cluster, so the start has a time limit and boot does not hang.
func TestAgentUnitStartIsBounded(t *testing.T) {
	for _, name := range []string{"TimeoutStartSec", "TimeoutStopSec"} {
		values := setting(name)
		if len(values) != 1 {
			t.Fatalf("%s is given %d times", name, len(values))
		}
		if d, err := time.ParseDuration(values[0] + "s"); err != nil || d > 2*time.Minute {
			t.Errorf("%s=%s is not a number of seconds up to two minutes", name, values[0])
		}
	}
	if got := setting("RestartPreventExitStatus"); len(got) != 1 || got[0] != "3" {
		t.Errorf("RestartPreventExitStatus is %v; a wrong configuration must not restart the agent", got)
	}
}

func TestAgentUnitHardening(t *testing.T) {
	for name, want := range map[string]string{
		"NoNewPrivileges":         "yes",
		"LockPersonality":         "yes",
		"RestrictRealtime":        "yes",
		"RestrictNamespaces":      "net",
		"SystemCallArchitectures": "native",
		"UMask":                   "0077",
	} {
		if got := setting(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	dropped := strings.Join(setting("CapabilityBoundingSet"), " ")
	if !strings.Contains(dropped, "CAP_SYS_TIME") {
		t.Errorf("the agent may set the clock: CapabilityBoundingSet is %s", dropped)
	}
}

// In its own mount namespace the agent would unmount pods' volumes only for itself, and then delete
// their contents. ProtectClock= creates no namespace, but denies block devices.
func TestAgentUnitHasTheHostsMounts(t *testing.T) {
	for _, name := range []string{
		"BindPaths", "BindReadOnlyPaths", "DynamicUser", "ExecPaths", "InaccessiblePaths", "MountAPIVFS",
		"NoExecPaths", "PrivateDevices", "PrivateMounts", "PrivateTmp", "PrivateUsers", "ProcSubset",
		"ProtectClock", "ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs",
		"ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "ProtectSystem",
		"ReadOnlyPaths", "ReadWritePaths", "RootDirectory", "RootImage", "TemporaryFileSystem", "User",
	} {
		if got := setting(name); len(got) > 0 {
			t.Errorf("the agent's unit has %s=%s", name, got[0])
		}
	}
}

// unit returns the text of a unit.
func unit(name string) string { return text("systemd/" + name) }

// text returns the text of a file of Files.
func text(name string) string {
	data, err := Files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(data)
}
