package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

// prepares runs `flexnode-rp cluster` here, and returns what it printed and its exit code.
func prepares(t *testing.T, kubeconfig string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(agent), "flexnode-rp"),
		append([]string{"cluster", "--kubeconfig", kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// A cluster of its own is prepared from nothing, a second time nothing is done, a change that another
// program made is shown, and all of it but the list of machines that are shut out is removed.
func TestClusterPrepared(t *testing.T) {
	kubeconfig, stop, err := bench.SecondCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := bench.Kubectl(t.Context(), "", append([]string{"--kubeconfig=" + kubeconfig},
			args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,configmaps," +
		"daemonsets,validatingadmissionpolicies,validatingadmissionpolicybindings"
	all := func() string { return kubectl("get", kinds, "-A", "-o", "name", "--ignore-not-found") }
	before := all()
	says := func(code int, want string, args ...string) {
		t.Helper()
		out, got := prepares(t, kubeconfig, args...)
		if got != code || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", args, got, code, want, out)
		}
	}
	says(2, "create     ValidatingAdmissionPolicy flexnode-revoked", "prepare", "--dry-run")
	if after := all(); after != before {
		t.Errorf("a dry run has changed the cluster to\n%s", after)
	}
	says(2, "changes made", "prepare", "--identities=group-1", "--leave", "--yes") // it has no DNS
	says(2, "nothing to change", "prepare", "--identities=group-1", "--leave")
	says(2, "nothing to change", "prepare", "--identities=group-1", "--leave", "--kube-proxy=auto")
	kubectl("-n", "kube-system", "patch", "daemonset", "aks-flex-node-kube-proxy", "--type=json", "-p",
		`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "theirs:1"}]`)
	says(1, "--force-conflicts takes them over", "prepare", "--identities=group-1", "--leave", "--yes")
	says(2, `image: "theirs:1" -> "registry.k8s.io/kube-proxy:v`+lab.Newest.Kubernetes, "prepare",
		"--identities=group-1", "--leave", "--force-conflicts", "--yes")
	says(0, "changes made", "unprepare", "--yes")
	after := strings.Replace(all(), "configmap/flexnode-revoked\n", "", 1)
	if after != before {
		t.Errorf("the cluster had\n%s\nand has\n%s", before, after)
	}
	says(0, "nothing to change", "unprepare")
}
