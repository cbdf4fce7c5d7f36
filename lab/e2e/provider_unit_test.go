package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/lab"
)

// installed returns a machine with flexnode-rp installed as in docs/how-to/run-a-provider.md.
func installed(t *testing.T, name string) lab.Machine {
	t.Helper()
	m := bareMachine(t, name)
	settings, err := json.Marshal(map[string]any{
		"listen": map[string]any{"address": ":8447", "certFile": "/etc/flexnode-rp/tls.crt",
			"keyFile": "/etc/flexnode-rp/tls.key"},
		"metricsAddress": "127.0.0.1:9447", "publicURL": "https://" + m.IP + ":8447",
		"dataDir":  "/var/lib/flexnode-rp",
		"keysFile": "/run/credentials/flexnode-rp.service/keys.json",
		"tenantId": lab.Tenant, "drainSeconds": 1,
		"authentication": map[string]any{
			"issuers": []map[string]any{{"url": lab.AzureURL + "/" + lab.Tenant + "/",
				"tenantId": lab.Tenant,
				"keysURL":  lab.AzureURL + "/" + lab.Tenant + "/discovery/v2.0/keys"}},
			"audiences": []string{"api://flexnode-rp"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const etc = "/etc/flexnode-rp/"
	for path, data := range map[string][]byte{
		"/usr/local/bin/flexnode-rp":              file(t, filepath.Dir(agent), "flexnode-rp"),
		"/etc/systemd/system/flexnode-rp.service": packaged(t, "systemd/flexnode-rp.service"),
		"/etc/sysusers.d/flexnode-rp.conf":        packaged(t, "sysusers.d/flexnode-rp.conf"),
		etc + "settings.json":                     settings,
		etc + "tls.crt":                           file(t, bench.Dir, "pki", "server.crt"),
		etc + "tls.key":                           file(t, bench.Dir, "pki", "server.key"),
	} {
		mode := os.FileMode(0o644)
		if filepath.Base(path) == "flexnode-rp" {
			mode = 0o755
		}
		if err := bench.Write(m, path, mode, data); err != nil {
			t.Fatal(err)
		}
	}
	for _, argv := range [][]string{
		{"systemd-sysusers"},
		{"chown", "-R", "flexnode-rp:", "/etc/flexnode-rp"},
		{"chmod", "0600", etc + "tls.key"},
		{"flexnode-rp", "keys", "init", etc + "keys.json"},
		{"systemctl", "daemon-reload"},
	} {
		done(t, m, argv...)
	}
	return m
}

func packaged(t *testing.T, name string) []byte {
	t.Helper()
	return file(t, "../../packaging", name)
}

func file(t *testing.T, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// done runs a command on a machine, which must succeed, and returns its output.
func done(t *testing.T, m lab.Machine, argv ...string) string {
	t.Helper()
	out, code := inside(t, m, argv...)
	if code != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(argv, " "), code, out)
	}
	return strings.TrimSpace(out)
}

// readiness returns the readiness of the provider on a machine, from its public address.
func readiness(t *testing.T, m lab.Machine) (string, error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(file(t, bench.CAFile()))
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: lab.HostIP}}}
	defer client.CloseIdleConnections()
	response, err := client.Get("https://" + m.IP + ":8447/readyz")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(text))), err
}

// The unit on a real machine: an unprivileged user, a store and keys that no other user can read, a
// start that ends when it serves, a restart of a program that hangs or dies, and an orderly stop.
func TestProviderUnit(t *testing.T) {
	t.Parallel()
	m := installed(t, "rp-unit")
	done(t, m, "systemctl", "start", "flexnode-rp")
	if got, err := readiness(t, m); got != "200 ok" {
		t.Errorf("after the start: %s %v", got, err)
	}
	show := func(property string) string {
		return done(t, m, "systemctl", "show", "--value", "-p", property, "flexnode-rp")
	}
	if got := show("StatusText"); got != "serving" {
		t.Errorf("the status is %q", got)
	}
	if got := done(t, m, "ps", "-o", "user=", "-p", show("MainPID")); got != "flexnode-rp" &&
		got != "flexnod+" {
		t.Errorf("it runs as %s", got)
	}
	for path, want := range map[string]string{
		"/var/lib/flexnode-rp": "flexnode-rp 700", "/etc/flexnode-rp/keys.json": "root 600",
		"/var/lib/flexnode-rp/etcd": "flexnode-rp 700",
	} {
		if got := done(t, m, "stat", "-c", "%U %a", path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if out := done(t, m, "flexnode-rp", "store", "status"); !strings.Contains(out, "leader") {
		t.Errorf("store status as root: %s", out)
	}
	done(t, m, "systemd-analyze", "security", "--no-pager", "--threshold=20", "flexnode-rp.service")

	done(t, m, "systemctl", "kill", "--signal=KILL", "flexnode-rp")
	restarted(t, m, show)
	const short = "/etc/systemd/system/flexnode-rp.service.d/short.conf"
	if err := bench.Write(m, short, 0o644, []byte("[Service]\nWatchdogSec=8\n")); err != nil {
		t.Fatal(err)
	}
	done(t, m, "systemctl", "daemon-reload")
	done(t, m, "systemctl", "restart", "flexnode-rp")
	done(t, m, "systemctl", "kill", "--signal=STOP", "flexnode-rp")
	restarted(t, m, show)

	done(t, m, "systemctl", "stop", "flexnode-rp")
	if got := show("Result") + " " + show("ExecMainStatus"); got != "success 0" {
		t.Errorf("the stop: %s", got)
	}
	if out := done(t, m, "journalctl", "--no-pager", "-o", "cat", "-u", "flexnode-rp", "-n",
		"20"); !strings.Contains(out, `"draining"`) {
		t.Errorf("it has not drained:\n%s", out)
	}
}

// restarted waits until systemd has restarted the provider and it is ready.
func restarted(t *testing.T, m lab.Machine, show func(string) string) {
	t.Helper()
	eventually(t, "the provider is started again", func() bool {
		got, err := readiness(t, m)
		return show("NRestarts") == "1" && err == nil && got == "200 ok"
	})
}
