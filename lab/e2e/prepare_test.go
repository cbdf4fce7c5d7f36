package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// prepares runs `flexnode-rp cluster` and returns its output and exit code.
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

// A new cluster is prepared, a second run is a no-op, another program's change is shown, and
// everything except the list of revoked machines is removed.
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
	says(2, "changes made", "prepare", "--identities=group-1", "--leave", "--yes") // without DNS
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

// A node that joins a cluster whose kube-proxy does not run on flex nodes exits with its own code,
// and has Services as soon as the cluster is prepared. No other test runs at the same time.
func TestServicesWithoutProxy(t *testing.T) {
	m := machine(t, "edge-0")
	t.Run("Join", func(t *testing.T) { joinsWithoutProxy(t, m) })
	t.Run("Tunnel", func(t *testing.T) { throughTunnel(t, m) })
}

func joinsWithoutProxy(t *testing.T, m lab.Machine) {
	out, code := prepares(t, bench.Kubeconfig(), "prepare", "--kube-proxy=no", "--yes")
	if code != 2 ||
		!strings.Contains(out, "delete     DaemonSet kube-system/aks-flex-node-kube-proxy") ||
		!strings.Contains(out, "neither kube-proxy nor a replacement is scheduled") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	eventually(t, "the end of kube-proxy", func() bool {
		out, err := bench.Kubectl(t.Context(), "", "-n", "kube-system", "get", "pods", "-o", "name")
		return err == nil && !strings.Contains(out, "kube-proxy")
	})
	out, code = flex(t, m, "bootstrap")
	if code != 2 || !strings.Contains(out, "Node edge-0 is Ready") ||
		!strings.Contains(out, "ServicesReachable is False (ProxyMissing)") {
		t.Errorf("a join without kube-proxy: exit code %d\n%s", code, out)
	}
	out, code = prepares(t, bench.Kubeconfig(), "prepare", "--yes")
	if code != 0 ||
		!strings.Contains(out, "create     DaemonSet kube-system/aks-flex-node-kube-proxy") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	eventually(t, "Services on the node", func() bool {
		status := must(t, m, "status", "-o", "json")
		return !strings.Contains(status, "ProxyMissing") && !strings.Contains(status, "NotReachable")
	})
	providersKubeconfig(t)
}

// providersKubeconfig runs the commands of docs/how-to/run-a-provider.md in the prepared cluster:
// the kubeconfig has the provider's rights, and no more.
func providersKubeconfig(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/run-a-provider.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(text), "\n```bash\n")
	script, _, _ = strings.Cut(script, "\n```\n")
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+bench.Kubeconfig(),
		"PATH="+filepath.Dir(bench.Kubeconfig())+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made := filepath.Join(cmd.Dir, "factory.kubeconfig")
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig is %v, %v", info, err)
	}
	for verb, want := range map[string]string{"create": "yes", "get": "no"} {
		out, _ := bench.Kubectl(t.Context(), "", "--kubeconfig="+made, "-n", "kube-system",
			"auth", "can-i", verb, "secrets")
		if !strings.HasPrefix(out, want) {
			t.Errorf("the provider may %s Secrets: %s", verb, out)
		}
	}
}

// The commands of docs/how-to/use-az.md, "From a cluster to a Service", verbatim: a cluster is
// enabled, a machine joins, and another node's pod resolves the name of a Service on it. No other
// test runs at the same time: a node on which kube-proxy is not ready yet would fail the first one.
func TestFromClusterToService(t *testing.T) {
	other := peer(t)
	if err := bench.CheckServices(t.Context(), other.Name); err != nil {
		t.Fatal(err)
	}
	m := bareMachine(t, "edge-2", "azure-cli")
	operates(t, m)
	extend(t, m)
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	program := file(t, filepath.Dir(agent), "flexnode-rp")
	if err := bench.Write(m, operatorsHome+"/flexnode-rp", 0o755, program); err != nil {
		t.Fatal(err)
	}
	transcript(t, m, other)
	if out, code := prepares(t, bench.Kubeconfig(), "unprepare", "--dry-run"); code != 2 ||
		!strings.Contains(out, "delete     DaemonSet kube-system/aks-flex-node-kube-proxy") ||
		strings.Contains(out, "ConfigMap kube-system/flexnode-revoked") {
		t.Errorf("what would be removed: exit code %d:\n%s", code, out)
	}
	_, err := bench.Kubectl(t.Context(), "", "delete", "deployment/web", "service/web")
	if err != nil {
		t.Error(err)
	}
	azOf{m}.leaves(t)
}

// transcript runs the document's commands on one machine, which is both the operator's and the one
// that joins.
func transcript(t *testing.T, m lab.Machine, other neighbour) {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/use-az.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## From a cluster to a Service\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```bash( machine)?\n(.*?)^```$").FindAllStringSubmatch(
		section, -1)
	if len(blocks) < 3 {
		t.Fatalf("the document has %d blocks", len(blocks))
	}
	before := inOperatorsShell + "GROUP=flexlab CLUSTER=flexlab POD=" + other.Name +
		" RESOLVE='/hello resolve' FETCH='/hello client' PS4='$ '\n" +
		"AZURE_EXTENSION_DIR=$HOME/.azure/cliextensions AZURE_CORE_COLLECT_TELEMETRY=0\n" +
		"AZURE_CORE_ONLY_SHOW_ERRORS=1 AZURE_EXTENSION_USE_DYNAMIC_INSTALL=no\n"
	for _, b := range blocks {
		script := before + b[2] + "export -p > env\n"
		if b[1] != "" { // it reads the URL
			script = "{ " + b[2] + "} < <(. " + operatorsHome + "/env; echo $URL)\n"
		}
		out, code := inside(t, m, "bash", "-eo", "pipefail", "-c", script)
		t.Logf("%s%s", b[2], out)
		if code != 0 {
			pods, err := bench.Kubectl(t.Context(), "", "get", "pods", "-A", "-o", "wide")
			again, why := bench.Resolve(t.Context(), other.Name, "web.default.svc.cluster.local")
			t.Fatalf("exit code %d\n%s%v\na minute later: %s %v", code, pods, err, again, why)
		}
		if strings.Contains(b[2], "$FETCH") && !strings.Contains(out, "hello from web-") {
			t.Errorf("the Service answers %q", out)
		}
	}
}
