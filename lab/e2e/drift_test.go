package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// As a service the agent joins, notifies systemd, and writes its status. Every unexpected change is
// reported with its place and the expected and found values; repair fixes exactly that, and so does
// the service if its policy says so. unbootstrap stops it.
func TestDrift(t *testing.T) {
	t.Parallel()
	m := machine(t, "drift-1")
	sure(t, m, "sysctl", "-qw", "kernel.panic=5", forwarding+"=0")
	before := snapshot(t.Context(), t, m)
	joinsAsService(t, m)
	sure(t, m, "systemctl", "disable", "--now", service)
	tests := []struct {
		name     string
		spoil    []string
		key      string
		expected string
		found    string
		repairs  int
	}{
		{"kubelet flag file", []string{"sed", "-i", "s/root-dir=/v=9 --root-dir=/",
			"/etc/systemd/system/kubelet.service"}, "path:/etc/systemd/system/kubelet.service", "sha256",
			"sha256", 2},
		{"unit disabled", []string{"systemctl", "disable", "-q", "kubelet"}, "unit:kubelet.service",
			"enabled and running", "disabled and running", 1},
		{"binary link", []string{"ln", "-sfn", "/bin/true", "/usr/local/bin/kubelet"},
			"path:/usr/local/bin/kubelet", "a link to /opt/aks-flex-node/store/", "a link to /bin/true", 2},
		{"sysctl", []string{"sysctl", "-qw", "net.ipv4.ip_forward=0"}, "sysctl:net.ipv4.ip_forward", "1",
			"0", 1},
		{"kubelet stopped", []string{"systemctl", "stop", "kubelet"}, "unit:kubelet.service",
			"enabled and running", "enabled and stopped", 1},
		{"file removed", []string{"rm", "/etc/cni/net.d/99-aks-flex-node.conflist"},
			"path:/etc/cni/net.d/99-aks-flex-node.conflist", "a file of mode 0644", "absent", 1},
		{"mode widened", []string{"chmod", "0666", "/var/lib/kubelet/config.yaml"},
			"path:/var/lib/kubelet/config.yaml", "mode 0600", "mode 0666", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if out, code := inside(t, m, tt.spoil...); code != 0 {
				t.Fatalf("cannot break it: %s", out)
			}
			found := drift(t, m)
			if len(found) != tt.repairs {
				t.Errorf("%d findings, want %d: %+v", len(found), tt.repairs, found)
			}
			if len(found) == 0 || found[0].Key != tt.key ||
				!strings.Contains(found[0].Expected, tt.expected) ||
				!strings.Contains(found[0].Found, tt.found) {
				t.Errorf("first finding is %+v; want %s, expected %q, found %q", found, tt.key, tt.expected,
					tt.found)
			}
			out := must(t, m, "drift", "--repair", "--output", "json")
			if got := parseDrift(t, lastObject(out)); len(got) != tt.repairs {
				t.Errorf("repair made %d changes, want %d: %s", len(got), tt.repairs, out)
			}
			if left := drift(t, m); len(left) != 0 {
				t.Errorf("after the repair there is still drift: %+v", left)
			}
		})
	}
	if _, err := bench.Kubectl(t.Context(), "", "wait", "--for=condition=Ready", "--timeout=60s",
		"node/"+m.Name); err != nil {
		t.Error(err)
	}
	driftUnderTheService(t, m)
	// As cron, or su without "-", runs it.
	const leave = "PATH=/usr/local/bin:/usr/bin:/bin aks-flex-node unbootstrap --yes && iptables-save"
	if out, code := inside(t, m, "bash", "-c", leave); code != 0 || strings.Contains(out, ":KUBE-") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, _ := inside(t, m, "systemctl", "is-enabled", service); out != "disabled\n" {
		t.Errorf("after unbootstrap the service is %s", out)
	}
	same(t, without(before, lab.ConfigPath), without(snapshot(t.Context(), t, m), lab.ConfigPath))
}

// joinsAsService joins a machine by its service.
func joinsAsService(t *testing.T, m lab.Machine) {
	t.Helper()
	enable(t, m)
	sure(t, m, "systemctl", "is-active", service)
	eventually(t, "the status file", func() bool {
		status := statusFile(t, m)
		return status.Ready == "True" && status.NodeName == m.Name
	})
	if out := sure(t, m, "stat", "-c", "%a", "/run/aks-flex-node/status.json"); out != "600\n" {
		t.Errorf("the status file has mode %s", out)
	}
}

// driftUnderTheService lets the service detect drift. The next sweep is minutes away, so drift
// detected before was reported by the kernel or systemd.
func driftUnderTheService(t *testing.T, m lab.Machine) {
	t.Helper()
	const sysctls, foreign = "/etc/sysctl.d/999-aks-flex-node.conf", "# foreign\n"
	policies := func(interval string, by map[string]any) {
		t.Helper()
		edit(t, m, func(c map[string]any) {
			agent := section(c, "agent")
			agent["checkInterval"], agent["driftPolicies"] = interval, by
		})
	}
	own := read(t, m, sysctls)
	spoil := func() {
		t.Helper()
		if err := bench.Write(m, sysctls, 0o644, []byte(foreign)); err != nil {
			t.Fatal(err)
		}
	}
	forwards := func() string { return strings.TrimSpace(sure(t, m, "sysctl", "-n", forwarding)) }
	policies("10m", map[string]any{"path": "repair", "unit": "repair", "sysctl": "off"})
	enable(t, m)
	eventually(t, "a check with the policies", func() bool { // no earlier check
		r := statusFile(t, m)
		return applied(m, `"checkInterval": "10m"`) && r.CheckedAt != "" && len(r.Drift) == 0
	})
	sure(t, m, "sysctl", "-qw", forwarding+"=0")
	spoil()
	eventually(t, "the repair of a file", func() bool {
		return read(t, m, sysctls) == own
	})
	if forwards() != "0" {
		t.Error("what is off is repaired")
	}
	runs := func() bool {
		out, _ := inside(t, m, "systemctl", "is-active", "kubelet")
		enabled, _ := inside(t, m, "systemctl", "is-enabled", "kubelet")
		return strings.TrimSpace(out) == "active" && strings.TrimSpace(enabled) == "enabled"
	}
	sure(t, m, "systemctl", "stop", "kubelet")
	eventually(t, "the start of kubelet", runs)
	sure(t, m, "bash", "-c", "rm /etc/systemd/system/kubelet.service && "+
		"systemctl mask kubelet && systemctl stop kubelet")
	eventually(t, "a kubelet that is not masked", runs)

	policies("10s", map[string]any{"path": "report", "sysctl": "repair"})
	eventually(t, "the repair of a sysctl", func() bool { return forwards() == "1" })
	spoil()
	eventually(t, "the report of a file", func() bool {
		drift := statusFile(t, m).Drift
		return len(drift) == 1 && drift[0].Key == "path:"+sysctls
	})
	sure(t, m, "sysctl", "-qw", forwarding+"=0")
	eventually(t, "the repair of a sysctl", func() bool { return forwards() == "1" })
	if read(t, m, sysctls) != foreign {
		t.Error("what is to be reported is repaired")
	}
	journal := ""
	eventually(t, "what the journal says of the repair", func() bool {
		journal, _ = inside(t, m, "journalctl", "--no-pager", "-o", "cat", "-u", service)
		return strings.Contains(journal, "drift repaired")
	})
	for _, want := range []string{"msg=drift what=sysctl:" + forwarding, "expected=1 found=0"} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal does not say %q:\n%s", want, journal)
		}
	}
	if err := bench.Write(m, sysctls, 0o644, []byte(own)); err != nil {
		t.Fatal(err)
	}
}

const forwarding = "net.ipv4.ip_forward"

// read returns the content of a file on a machine.
func read(t *testing.T, m lab.Machine, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.Root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sure runs a command on a machine, which must succeed.
func sure(t *testing.T, m lab.Machine, argv ...string) string {
	t.Helper()
	out, code := inside(t, m, argv...)
	if code != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(argv, " "), code, out)
	}
	return out
}

type finding struct{ Key, Expected, Found string }

func drift(t *testing.T, m lab.Machine) []finding {
	t.Helper()
	out, code := flex(t, m, "drift", "--output", "json")
	if code != 0 && code != 2 {
		t.Fatalf("drift: exit code %d\n%s", code, out)
	}
	return parseDrift(t, lastObject(out))
}

// lastObject returns the JSON object that a command printed after its progress.
func lastObject(out string) string {
	if i := strings.Index(out, "{\n"); i >= 0 {
		return out[i:]
	}
	return out
}

func parseDrift(t *testing.T, text string) []finding {
	t.Helper()
	var report struct{ Changes []finding }
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("drift is not JSON: %v\n%s", err, text)
	}
	return report.Changes
}
