package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// pinOf are the documented commands that print a certificate's pin.
const pinOf = "openssl x509 -in %s -noout -pubkey | openssl pkey -pubin -outform der | " +
	"openssl dgst -sha256"

// A machine authenticates its provider by a CA that the system does not trust: with a wrong pin it
// sends nothing. Without an owner's policy it refuses a configuration with overrides from the
// provider and installs nothing; with a policy that allows them, it joins with the same URL, and
// later it follows with the same CA.
func firstContact(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "contact-1")
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	ca, err := bench.CA()
	if err != nil {
		t.Fatal(err)
	}
	writeIn(t, m, "/root/ca.crt", string(ca))
	printed, err := exec.Command("sh", "-c",
		strings.Replace(pinOf, "%s", bench.CAFile(), 1)).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, pin, _ := strings.Cut(strings.TrimSpace(string(printed)), "= ")
	f := &followed{name: m.Name, want: desired{"versions": lab.Newest.Desired(),
		"nodeConfig": desired{"labels": desired{"line": "1"}}}}
	url := created(t, m.Name, f.want)
	writeIn(t, m, "/root/url", url)
	join := []string{
		"agent", "--config-url-file", "/root/url", "--ca-file", "/root/ca.crt", "--ca-pin",
	}
	other := strings.Repeat("0", 64)
	if out, code := flex(t, m, append(join, "sha256:"+other)...); code != 1 ||
		!strings.Contains(out, "the URL was not sent") {
		t.Errorf("with another pin: exit code %d\n%s", code, out)
	}
	join = append(join, "sha256:"+pin)
	withoutPolicy(t, m, join)
	if out := must(t, m, "policy", "show"); !strings.Contains(out, lab.HostIP) {
		t.Errorf("the policy is\n%s", out)
	}
	must(t, m, join...)
	f.polls(t)
	output(t, m, "sh", "-c", "rm /usr/local/share/ca-certificates/flexlab.crt && "+
		"update-ca-certificates --fresh >/dev/null && ! curl -sS "+lab.ProviderURL+
		" && systemctl restart "+service)
	f.labels(t, "2")
	must(t, m, "unbootstrap", "--yes")
	rp(t, 200, http.MethodDelete, rpNode(m.Name), nil)
}

// withoutPolicy lets a machine join without an owner's policy.
func withoutPolicy(t *testing.T, m lab.Machine, join []string) {
	t.Helper()
	file := filepath.Join(m.Root, lab.PolicyPath)
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	out, code := flex(t, m, join...)
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
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
}
