package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab"
)

// A machine that is not connected to Arc joins by one command: the service principal in its
// flexNodeConfig enrols it, and its secret is erased on the machine. The node follows its resource
// with its own identity, and updates do not bring the secret back. After the deletion of its
// resource nothing remains in Azure.
func arcOnboarded(t *testing.T) {
	t.Parallel()
	const name = "onboard-1"
	m := bareMachine(t, name)
	if err := bench.AddArc(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t.Context(), t, m)
	node := func(label string) desired {
		return desired{"properties": desired{
			"continuousMonitoring": true, "monitoring": desired{"endpoint": lab.ProviderURL},
			"versions": lab.Newest.Desired(),
			"azureAuth": desired{"method": "arc", "arc": desired{"autoRoleAssignment": true,
				"onboarding": desired{"clientId": who.Operator.ClientID,
					"clientSecret": who.Operator.Secret}}},
			"kubernetesAuth": desired{"useAzureAuth": true, "kubeletCredential": "token"},
			"nodeConfig":     desired{"labels": desired{"line": label}},
		}}
	}
	answer := rp(t, 201, http.MethodPut, rpNode(name)+"?configUrl=true", node("1"))
	if text, _ := json.Marshal(answer); strings.Contains(string(text), who.Operator.Secret) {
		t.Error("the answer shows the secret")
	}
	url, _ := properties(answer)["configUrl"].(string)
	status, bundle := get(t, url)
	if status != 200 || !strings.Contains(bundle, who.Operator.Secret) {
		t.Fatalf("the configuration URL: %d", status)
	}
	out := output(t, m, "sh", "-c", "echo '"+url+"' | aks-flex-node agent --config-url-file -")
	if !strings.Contains(out, "is Ready") || !strings.Contains(out, "connected and authorised") {
		t.Fatalf("the command says\n%s", out)
	}
	if _, err := bench.CheckPod(t.Context(), "pod-onboard", name); err != nil {
		t.Error(err)
	}
	erased(t, m, who.Operator.Secret)
	principal := arcPrincipal(t, name)
	own := func(a azuresim.Assignment) bool { return a.PrincipalID == principal }
	if !slices.ContainsFunc(assignments(t), own) {
		t.Errorf("the machine's principal %q has no role", principal)
	}

	rp(t, 200, http.MethodPut, rpNode(name), node("2"))
	eventually(t, "the label in Kubernetes", func() bool {
		return nodeOf(t, name).Labels["line"] == "2"
	})
	shown := properties(rp(t, 200, http.MethodGet, rpNode(name), nil))
	eventually(t, "the version to be applied", func() bool {
		const file = "/var/lib/aks-flex-node/config-version.txt"
		return strings.TrimSpace(output(t, m, "cat", file)) == shown["configVersion"]
	})
	erased(t, m, who.Operator.Secret)

	rp(t, 200, http.MethodDelete, rpNode(name), nil)
	waitsAgain(t, m)
	if _, err := bench.Kubectl(t.Context(), "", "get", "node", name); err == nil {
		t.Error("the Node is left")
	}
	same(t, before, snapshot(t.Context(), t, m))
	status, summary, err := bench.ARM(t.Context(), http.MethodPost, lab.ProviderURL,
		lab.ClusterID+"/summarizeFlexNodes", lab.ProviderAPI, nil)
	if err != nil || status != 200 || strings.Contains(summary, name) {
		t.Errorf("the provider lists what is left: %d %s, %v", status, summary, err)
	}
	if now := assignments(t); slices.ContainsFunc(now, own) {
		t.Errorf("the machine's role assignments are left: %+v", now)
	}
	if left := arcPrincipal(t, name); left != "" {
		t.Errorf("the Arc machine is left, with the principal %s", left)
	}
}

// erased searches a machine's files, logs and processes for a secret.
func erased(t *testing.T, m lab.Machine, secret string) {
	t.Helper()
	pattern := filepath.Join(m.Root, "root/.pattern") // so that no command line contains it
	if err := os.WriteFile(pattern, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	left := output(t, m, "sh", "-c",
		"grep -rlFf /root/.pattern /var /etc /run /proc/[0-9]*/cmdline 2>/dev/null || true")
	if err := os.Remove(pattern); err != nil {
		t.Fatal(err)
	}
	if left != "" {
		t.Errorf("the secret is left in %s", left)
	}
}
