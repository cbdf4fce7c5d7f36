package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// service is the agent's unit.
const service = "aks-flex-node-agent.service"

// joinByURL joins a machine by one command, which leaves no trace of the URL and keeps the service
// running. The same command again is a no-op.
func joinByURL(t *testing.T, m lab.Machine, url string) {
	t.Helper()
	if err := os.Remove(filepath.Join(m.Root, lab.ConfigPath)); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	file := filepath.Join(m.Root, "root/url")
	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := must(t, m, "agent", "--config-url-file", "/root/url")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "is Ready") || !strings.Contains(out, service) {
		t.Errorf("the command says\n%s", out)
	}
	const is = "active\nenabled\n"
	if got := output(t, m, "sh", "-c", "systemctl is-active "+service+
		"; systemctl is-enabled "+service); got != is {
		t.Errorf("the service is %q", got)
	}
	_, signature, _ := strings.Cut(url, "sig=")
	pattern := filepath.Join(m.Root, "root/.pattern") // so that no command line contains it
	if err := os.WriteFile(pattern, []byte(signature), 0o600); err != nil {
		t.Fatal(err)
	}
	left := output(t, m, "sh", "-c",
		"grep -rlFf /root/.pattern /var /etc /run /proc/[0-9]*/cmdline 2>/dev/null || true")
	if err := os.Remove(pattern); err != nil {
		t.Fatal(err)
	}
	if signature == "" || left != "" {
		t.Errorf("the URL is left in %s", left)
	}
	mode := output(t, m, "stat", "-c", "%a %U", "/var/lib/aks-flex-node/bundle.json")
	if mode != "600 root\n" {
		t.Errorf("the bundle has %s", mode)
	}
	must(t, m, "agent", "--config-url", url)
	dead := strings.Replace(url, "se=2", "se=1", 1)
	if out, code := flex(t, m, "agent", "--config-url", dead); code != 1 ||
		!strings.Contains(out, "regenerateToken") || strings.Contains(out, signature) {
		t.Errorf("a dead URL: exit code %d\n%s", code, out)
	}
}

// output returns the output of a command on a machine, which must succeed.
func output(t *testing.T, m lab.Machine, argv ...string) string {
	t.Helper()
	out, code := inside(t, m, argv...)
	if code != 0 {
		t.Fatalf("%v: exit code %d\n%s", argv, code, out)
	}
	return out
}
