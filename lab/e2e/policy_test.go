package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// A machine without an owner's policy refuses a configuration with overrides from the provider and
// installs nothing; with a policy that allows them, it joins with the same URL.
func withinThePolicy(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "policy-1")
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	file := filepath.Join(m.Root, lab.PolicyPath)
	allowed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	url := created(t, m.Name, desired{"versions": lab.Newest.Desired()})
	join := "echo '" + url + "' | aks-flex-node agent --config-url-file - 2>&1"
	out, code := inside(t, m, "sh", "-c", join)
	if code != 3 || !strings.Contains(out, "artifacts.overrides") ||
		!strings.Contains(out, lab.PolicyPath) {
		t.Errorf("without a policy: exit code %d\n%s", code, out)
	}
	for _, path := range []string{"var/lib/aks-flex-node/bundle.json", "opt/aks-flex-node/store",
		"etc/systemd/system/kubelet.service"} {
		if _, err := os.Lstat(filepath.Join(m.Root, path)); err == nil {
			t.Errorf("/%s is there", path)
		}
	}
	if out := must(t, m, "policy", "show"); !strings.Contains(out, lab.PolicyPath+" does not exist") {
		t.Errorf("without a policy `policy show` says\n%s", out)
	}

	if err := os.WriteFile(file, allowed, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := must(t, m, "policy", "show"); !strings.Contains(out, lab.HostIP) {
		t.Errorf("the policy is\n%s", out)
	}
	if out := output(t, m, "sh", "-c", join); !strings.Contains(out, "is Ready") {
		t.Fatalf("with a policy:\n%s", out)
	}
	must(t, m, "unbootstrap", "--yes")
	rp(t, 200, http.MethodDelete, rpNode(m.Name), nil)
}
