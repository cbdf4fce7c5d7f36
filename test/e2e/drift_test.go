package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

// Whatever is changed behind the agent's back is reported with what, where, expected and found;
// repair puts right exactly that.
func TestDrift(t *testing.T) {
	t.Parallel()
	m := machine(t, "drift-1")
	must(t, m, "bootstrap")
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

// lastObject is the JSON object that a command has printed after its progress.
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
