package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// doctor finds nothing on a healthy machine, before and after its join, and reports a planted fault
// first. A support bundle contains no token.
func TestDoctor(t *testing.T) {
	const noMatter = "SizeAdvised,VersionsSupported" // this machine's size, the date
	t.Parallel()
	m := machine(t, "doctor-1")
	must(t, m, "doctor", "--skip", noMatter)
	joinsInSecret(t, m)
	must(t, m, "doctor", "--skip", noMatter)
	must(t, m, "endpoints")
	api := "iptables -w %s OUTPUT -p tcp --dport " + apiPort(t, m) + " -j DROP"
	for _, tt := range []struct{ name, plant, mend, first string }{
		{"containerd stopped", "systemctl stop containerd",
			"systemctl start containerd; systemctl start kubelet", "ContainerdRunning"},
		{"kubelet stopped", "systemctl stop kubelet", "systemctl start kubelet", "KubeletRunning"},
		{"the API server cut off", strings.Replace(api, "%s", "-I", 1),
			strings.Replace(api, "%s", "-D", 1), "APIServerReachable"},
		{"a changed file", "echo x >> /etc/sysctl.d/999-aks-flex-node.conf",
			"aks-flex-node drift --repair", "HostAsConfigured"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out, code := inside(t, m, "bash", "-c", tt.plant); code != 0 {
				t.Fatal(out)
			}
			out, code := flex(t, m, "doctor", "-o", "json")
			var list []struct{ Type, Verdict string }
			if err := json.Unmarshal([]byte(out), &list); err != nil || code != 2 || len(list) == 0 ||
				list[0].Type != tt.first {
				t.Errorf("exit code %d, %v; want %s first in\n%.2000s", code, err, tt.first, out)
			}
			if out, code := inside(t, m, "bash", "-c", tt.mend); code != 0 {
				t.Fatal(out)
			}
			eventually(t, "nothing to be wrong any more", func() bool {
				_, code := flex(t, m, "doctor", "--skip", noMatter)
				return code == 0
			})
		})
	}
	must(t, m, "support-bundle", "--file", "/root/bundle.tar.gz")
	out, code := inside(t, m, "bash", "-c", "tar xOzf /root/bundle.tar.gz | grep -cE "+
		"'PRIVATE KEY-----$|token: [a-z0-9]{6}[.]'; tar tzf /root/bundle.tar.gz")
	if code != 0 || !strings.HasPrefix(out, "0\n") || !strings.Contains(out, "journal/kubelet") {
		t.Errorf("exit code %d; the bundle has\n%s", code, out)
	}
}

// apiPort returns the port of the machine's API server.
func apiPort(t *testing.T, m lab.Machine) string {
	t.Helper()
	var status struct{ Server string }
	if err := json.Unmarshal([]byte(must(t, m, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	return status.Server[strings.LastIndex(status.Server, ":")+1:]
}
