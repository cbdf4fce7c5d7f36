package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/manifests"
)

// azure sends a request to the control API of the lab's Azure.
func azure(t *testing.T, method, path string, body any) string {
	t.Helper()
	out, err := bench.AzureControl(context.Background(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAzure runs the tests that share the lab's Azure and its resource provider. Those of Operator
// kill the provider and take its cluster away: they run first, one at a time, and only tests that
// tolerate this run at the same time. Those of az share a registration of a second cluster.
func TestAzure(t *testing.T) {
	t.Parallel()
	t.Run("Operator", func(t *testing.T) {
		t.Run("Provider", provider)
		t.Run("ProviderClusters", providerClusters)
	})
	t.Run("Follows", follows)
	t.Run("Packages", packages)
	t.Run("Budget", oneBudget)
	t.Run("Az", func(t *testing.T) {
		t.Parallel()
		t.Run("Extension", azExtension)
		t.Run("CLI", azureCLI)
	})
	t.Run("ArcOnboarded", arcOnboarded)
	t.Run("LeastPrivilege", leastPrivilege)
	t.Run("ExitCodesOfAJoin", exitCodesOfAJoin)
	t.Run("Identities", identities)
	t.Run("TokensExpireAndRolesGo", tokensExpireAndRolesGo)
	t.Run("BadSecret", badSecret)
	t.Run("Examples", examplesJoin)
	t.Run("ExitCodes", exitCodes)
	t.Run("FirstContact", firstContact)
	t.Run("Registry", privateImages)
}

// A real kubelet joins with each identity: a pod runs, the second bootstrap is a no-op, no secret
// leaks, and unbootstrap restores the machine and leaves nothing in Azure. Data disks and symbolic
// links at the data directories of containerd and kubelet belong to the machine's owner, and are
// left unchanged.
func identities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		auth  string
		disks []lab.Disk
		setup string
	}{
		{"servicePrincipal", []lab.Disk{
			{FS: "ext4", Path: "/var/lib/containerd"}, {FS: "xfs", Path: "/var/lib/kubelet"},
		}, "true"},
		{"managedIdentity", []lab.Disk{{FS: "ext4", Path: "/data"}},
			`mkdir /data/containerd /data/kubelet && ln -s /data/containerd /data/kubelet /var/lib/ &&
			echo foreign >/data/foreign && chmod 640 /data/foreign`},
		{"arc", nil, "true"},
	} {
		t.Run(tt.auth, func(t *testing.T) {
			t.Parallel()
			m, err := bench.AddMachineWithDisks(t.Context(), "id-"+strings.ToLower(tt.auth[:3]),
				tt.disks...)
			dispose(t, m)
			if err != nil {
				t.Fatal(err)
			}
			sure(t, m, "bash", "-c", tt.setup)
			joinsAndLeaves(t, m, tt.auth)
		})
	}
}

// knobs sets the knobs of the lab's Azure for one machine. Delays apply to all machines.
func knobs(t *testing.T, m lab.Machine, k azuresim.Knobs) {
	t.Helper()
	azure(t, http.MethodPut, "/knobs?client="+m.IP, k)
}

// joinsAndLeaves joins a machine with an identity and removes it again.
func joinsAndLeaves(t *testing.T, m lab.Machine, auth string) {
	t.Helper()
	name := m.Name
	configureAs(t, m, lab.Newest, auth, func(c map[string]any) {
		if arc, ok := c["azure"].(map[string]any)["arc"].(map[string]any); ok {
			maps.Copy(arc, documented(name))
		}
	})
	before := snapshot(t.Context(), t, m)
	// Every token of the lab's Azure begins with the same header.
	stop := watchProcesses(t, m, secretOf(t, m)+"\n"+"eyJhbGciOiJSUzI1NiIsImtpZCI6\n")
	// Azure's delays of minutes are seconds here; with its clock behind, tokens are older than the
	// role assignments.
	if auth == "arc" {
		knobs(t, m, azuresim.Knobs{Replication: 6 * time.Second, Propagation: 10 * time.Second,
			Skew: -20 * time.Second})
		t.Cleanup(func() { knobs(t, m, azuresim.Knobs{}) })
	}
	var run []string
	if auth == "arc" { // as in the service: dpkg, azcmagent and az inherit the sandbox
		run = sandbox(t)
	}
	var killed strings.Builder // what the killed runs said
	for _, after := range killsOfJoin(auth) {
		said, _ := inside(t, m, slices.Concat(run, []string{"timeout", "--signal=KILL",
			fmt.Sprintf("%.3f", after.Seconds()), "aks-flex-node", "bootstrap"})...)
		killed.WriteString(said)
	}
	out, code := inside(t, m, append(run, "aks-flex-node", "bootstrap")...)
	if code != 0 {
		t.Fatalf("bootstrap: exit code %d\n%s", code, out)
	}
	out = killed.String() + out // on a busy machine a killed run has waited for some of it
	for _, wait := range waits[auth] {
		if !strings.Contains(out, wait) {
			t.Errorf("the progress does not say %q:\n%s", wait, out)
		}
	}
	if _, err := bench.CheckPod(t.Context(), "pod-"+name, name); err != nil {
		t.Error(err)
	}
	stop()
	quiet(t, m, out)
	runScript(t, m, "identity.txtar")
	if out := must(t, m, "bootstrap"); !strings.Contains(out, "nothing to do") {
		t.Errorf("the second bootstrap did something: %s", out)
	}
	var principal string
	if auth == "arc" {
		principal = arcPrincipal(t, name)
	}
	if out, code := inside(t, m, append(run, "aks-flex-node", "unbootstrap", "--yes")...); code != 0 {
		t.Fatalf("unbootstrap: exit code %d\n%s", code, out)
	}
	if auth == "arc" {
		arcLeft(t, name, principal)
	}
	if err := os.Remove(filepath.Join(m.Root, "root/.pattern")); err != nil {
		t.Error(err)
	}
	same(t, before, snapshot(t.Context(), t, m))
	if out, err := bench.Kubectl(t.Context(), "", "get", "node", name); err == nil {
		t.Errorf("the Node is left: %s", out)
	}
}

// documented returns the Arc section of the documentation's sample, with its placeholders filled
// in.
func documented(name string) map[string]any {
	return map[string]any{"machineName": name, "resourceGroup": "flexlab", "location": "westus",
		"tags":               map[string]any{"environment": "edge", "node-type": "worker"},
		"autoRoleAssignment": true}
}

// sandbox returns a command prefix that runs a command like the agent's unit: with every setting of
// the unit that restricts a process and its children.
func sandbox(t *testing.T) []string {
	t.Helper()
	const bounds = " NoNewPrivileges LockPersonality RestrictRealtime RestrictNamespaces " +
		"RestrictAddressFamilies SystemCallArchitectures SystemCallFilter SystemCallErrorNumber " +
		"CapabilityBoundingSet UMask MemoryHigh OOMScoreAdjust LimitCORE "
	const others = " Type ExecStart Environment TimeoutStartSec WatchdogSec Restart RestartSec " +
		"RestartPreventExitStatus TimeoutStopSec KillMode OOMPolicy "
	argv := []string{"systemd-run", "--quiet", "--wait", "--collect", "--pipe",
		"--property=KillMode=process"} // a killed run leaves its children
	_, service, _ := strings.Cut(
		string(packaged(t, "systemd/aks-flex-node-agent.service")), "[Service]\n")
	service, _, _ = strings.Cut(service, "[Install]")
	for line := range strings.Lines(service) {
		line = strings.TrimSpace(line)
		name, _, ok := strings.Cut(line, "=")
		switch {
		case !ok || strings.HasPrefix(line, "#"), strings.Contains(others, " "+name+" "):
		case strings.Contains(bounds, " "+name+" "):
			argv = append(argv, "--property="+line)
		default:
			t.Fatalf("the unit has %s: say whether it bounds the agent", name)
		}
	}
	return argv
}

// arcKills are the times at which a join is killed: while the Arc agent is downloaded and
// installed, and while the machine is connected.
var arcKills = map[string][]time.Duration{"arc": {60 * time.Millisecond, 120 * time.Millisecond,
	300 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond, 1300 * time.Millisecond,
	1800 * time.Millisecond}}

// killsOfJoin returns all of arcKills in the long form; in the short form one during the
// installation of the Arc agent and one while the machine is connected.
func killsOfJoin(auth string) []time.Duration {
	all := arcKills[auth]
	if long() || len(all) == 0 {
		return all
	}
	return []time.Duration{all[2], all[5]}
}

// waits are the waits that a join must report.
var waits = map[string][]string{"arc": {
	"waiting for the identity of the Arc machine to appear in Azure",
	"restarting the Arc agent's metadata service",
	"waiting for the role assignments to take effect", "is connected and authorised",
}}

// secretOf returns the secret in a machine's configuration, or a text that nothing contains.
func secretOf(t *testing.T, m lab.Machine) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(m.Root, lab.ConfigPath))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`"clientSecret": "([^"]+)"`).FindSubmatch(data); found != nil {
		return string(found[1])
	}
	return "no-such-secret-anywhere"
}

// quiet checks that a join has not printed, logged or written secrets.
func quiet(t *testing.T, m lab.Machine, out string) {
	t.Helper()
	journal, _ := inside(t, m, "journalctl", "--no-pager")
	status, _ := flex(t, m, "status", "--output", "json")
	for name, text := range map[string]string{"the output": out, "the journal": journal,
		"the status": status, "the log": logOf(t, m)} {
		if strings.Contains(text, secretOf(t, m)) || strings.Contains(text, "eyJhbGciOiJSUzI1NiIs") {
			t.Errorf("a secret is in %s:\n%s", name, text)
		}
	}
	for _, line := range holders(t, m) {
		if line != "" && !strings.HasPrefix(line, "600 ") {
			t.Errorf("a secret is in a file that others can read: %s", line)
		}
	}
}

// With kubeletCredential certificate the identity may only request a certificate, and kubelet has a
// node's usual rights.
func leastPrivilege(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "least-1")
	configureAs(t, m, lab.Newest, "servicePrincipal", func(c map[string]any) {
		section := c["azure"].(map[string]any)
		section["kubeletCredential"] = "certificate"
		section["servicePrincipal"] = map[string]any{"clientId": "aaaaaaaa-0000-0000-0000-000000000077",
			"clientSecret": "canary-of-least-privilege"}
	})
	const object, group = "bbbbbbbb-0000-0000-0000-000000000077",
		"dddddddd-0000-0000-0000-000000000077"
	azure(t, http.MethodPut, "/applications",
		azuresim.Application{ClientID: "aaaaaaaa-0000-0000-0000-000000000077", ObjectID: object,
			Groups: []string{group}, Secrets: []azuresim.Secret{{Value: "canary-of-least-privilege"}}})
	azure(t, http.MethodPut, "/assignments",
		azuresim.Assignment{Scope: lab.ClusterID, RoleID: "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
			PrincipalID: object})
	eventually(t, "a join that the operator has not allowed", func() bool { // once the role has effect
		out, code := flex(t, m, "bootstrap")
		return code == 1 && strings.Contains(out, "system:node-bootstrapper")
	})
	manifest := strings.ReplaceAll(manifests.Text("rbac-identity.yaml"),
		"GROUP-OBJECT-ID", group)
	if _, err := bench.Kubectl(t.Context(), manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = bench.Kubectl(context.Background(), manifest, "delete", "-f", "-") })
	must(t, m, "bootstrap")
	if _, err := bench.CheckPod(t.Context(), "pod-least", "least-1"); err != nil {
		t.Error(err)
	}
	if out, code := inside(t, m, "kubectl", "--kubeconfig=/var/lib/kubelet/kubeconfig", "get",
		"secrets", "-A"); code == 0 || !strings.Contains(out, "system:node:least-1") {
		t.Errorf("kubelet's credential reads every secret, or is no node's: %s", out)
	}
	must(t, m, "unbootstrap", "--yes")
}

// shortLife is a token lifetime with which tokens are reused for only ten seconds.
const shortLife = 40 * time.Second

// Short-lived tokens are replaced in time, an outage of Entra ID is survived, concurrent processes
// share one request, and a removed role takes effect.
func tokensExpireAndRolesGo(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "expiry-1")
	knobs(t, m, azuresim.Knobs{TokenLifetime: shortLife})
	t.Cleanup(func() { knobs(t, m, azuresim.Knobs{}) })
	configureAs(t, m, lab.Newest, "arc")
	must(t, m, "bootstrap")
	get := func() (string, int) {
		return inside(t, m, "kubectl", "--kubeconfig=/var/lib/kubelet/kubeconfig", "get", "node",
			"expiry-1", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	}
	token := func() string {
		out, _ := flex(t, m, "token")
		return out
	}
	seen := map[string]bool{}
	for range 8 {
		if len(seen) == 3 && !long() {
			break // only the long form continues
		}
		time.Sleep(5 * time.Second)
		seen[token()] = true
		if out, code := get(); code != 0 || out != "True" {
			t.Fatalf("with short tokens: %s", out)
		}
	}
	if len(seen) < 3 {
		t.Errorf("%d tokens in 40 s, want at least 3", len(seen))
	}
	knobs(t, m, azuresim.Knobs{})
	count := func() (n map[azuresim.Service]int) {
		text := azure(t, http.MethodGet, "/requests?client="+m.IP, nil)
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	const fifty = `rm /run/aks-flex-node/token-*.json
for i in $(seq 50); do aks-flex-node token > /tmp/token-$i & done
wait
cat /tmp/token-* | sort -u | wc -l`
	out, code := inside(t, m, "bash", "-c", fifty)
	if code != 0 || strings.TrimSpace(out) != "1" {
		t.Errorf("50 processes have got %s different tokens", out)
	}
	if n := count()[azuresim.Entra] - before[azuresim.Entra]; n != 1 {
		t.Errorf("50 processes have made %d requests to the issuer, want 1", n)
	}
	knobs(t, m, azuresim.Knobs{Faults: map[azuresim.Service]azuresim.Fault{
		azuresim.Entra: {Outage: true, Match: "token"}}})
	if out, code := get(); code != 0 {
		t.Errorf("during an outage: %s", out)
	}
	knobs(t, m, azuresim.Knobs{})
	principal := arcPrincipal(t, m.Name)
	azure(t, http.MethodDelete, "/assignments?principal="+principal, nil)
	eventually(t, "the API server to refuse the node", func() bool {
		out, code := get()
		return code != 0 && strings.Contains(out, "Forbidden")
	})
	// The output names what the identity may no longer do; the machine and Azure are cleaned up
	// nevertheless.
	if out, code := flex(t, m, "unbootstrap", "--yes", "--drain-timeout=0"); code != 1 ||
		!strings.Contains(out, "kubectl delete node expiry-1") {
		t.Errorf("unbootstrap: exit code %d\n%s", code, out)
	}
	arcLeft(t, m.Name, principal)
}

// loginCLI registers the lab's Azure as az's cloud.
const loginCLI = `set -e
export REQUESTS_CA_BUNDLE=$FLEXLAB_CA AZURE_CORE_COLLECT_TELEMETRY=0 AZURE_CORE_ONLY_SHOW_ERRORS=1
B=$FLEXLAB_ARM
az cloud register -n flexlab --endpoint-resource-manager $B --endpoint-management $B/ \
  --endpoint-active-directory $B/adfs --endpoint-active-directory-resource-id $B/ \
  --endpoint-active-directory-graph-resource-id $B/
az cloud set -n flexlab
`

// The real az CLI logs in and reads the cluster, and its login onboards a machine. On a terminal
// the agent offers to log in first.
func azureCLI(t *testing.T) {
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	m := bareMachine(t, "cli-1", "azure-cli")
	configureAs(t, m, lab.Newest, "azureCLI")
	shell := func(script string) (string, int) {
		return inside(t, m, "env", "HOME=/root", "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt",
			"FLEXLAB_CA=/etc/ssl/certs/ca-certificates.crt", "FLEXLAB_ARM="+lab.AzureURL,
			"CLUSTER="+lab.ClusterID, "SECOND="+lab.SecondClusterID, "TENANT="+lab.Tenant, "bash", "-c",
			script)
	}
	if out, code := shell(loginCLI + "az login --service-principal -u " + who.Operator.ClientID +
		" -p " + who.Operator.Secret + " --tenant $TENANT -o none\n" +
		`az account list --query '[].name' -o tsv
az rest --method get --url "$CLUSTER?api-version=2024-02-01" \
  --query properties.aadProfile.enableAzureRBAC
az resource show --ids $CLUSTER --query name -o tsv
az logout`); code != 0 || strings.TrimSpace(out) != "flexlab\ntrue\nflexlab" {
		t.Fatalf("az: exit code %d\n%s", code, out)
	}
	// The resource provider, with the same client through Resource Manager.
	if out, code := shell("set -eo pipefail\naz login --service-principal -u " +
		who.Operator.ClientID + " -p " + who.Operator.Secret + " --tenant $TENANT -o none\n" +
		`N=$CLUSTER/flexNodeConfig; V=2026-05-01-preview
az rest --method put --url "$N/az-1?api-version=$V&configUrl=true" \
  --body '{"properties":{"nodeConfig":{"maxPods":20}}}' --query properties.provisioningState -o tsv
az resource create --id $N/az-2 --api-version $V --properties '{"nodeConfig":{"maxPods":21}}' \
  --query properties.nodeConfig.maxPods -o tsv
az resource wait --ids $N/az-2 --api-version $V --created --interval 1
az resource update --ids $N/az-2 --api-version $V --set properties.nodeConfig.maxPods=22 \
  --query properties.nodeConfig.maxPods -o tsv
az resource show --ids $N/az-1 --api-version $V --query name -o tsv
az rest --method get --url "$N?api-version=$V" -o tsv \
  --query "length(value[?starts_with(name, 'az-')])"
az resource invoke-action --ids $N/az-2 --api-version $V --action regenerateToken |
  grep -c configUrlExpires
az resource delete --ids $N/az-1 --api-version $V -o none &&
  az resource delete --ids $N/az-2 --api-version $V -o none
az resource wait --ids $N/az-2 --api-version $V --deleted --interval 1
(az resource show --ids $N/az-1 --api-version $V 2>&1 || true) | grep -o ResourceNotFound | head -1
az rest --method put --url "$SECOND?api-version=$V" -o none \
  --body '{"location":"lab","properties":{"kubeconfig":"second"}}'
az resource show --ids $SECOND --api-version $V --query properties.provisioningState -o tsv
az resource delete --ids $SECOND --api-version $V -o none
az resource wait --ids $SECOND --api-version $V --deleted --interval 1
(az resource show --ids $SECOND --api-version $V 2>&1 || true) | grep -o ResourceNotFound | head -1
az logout`); code != 0 || strings.TrimSpace(out) != "Succeeded\n21\n22\naz-1\n2\n1\n"+
		"ResourceNotFound\nCreating\nResourceNotFound" {
		t.Errorf("az with the resource provider: exit code %d\n%s", code, out)
	}
	if out, code := shell("aks-flex-node bootstrap < /dev/null"); code != 1 ||
		!strings.Contains(out, "no terminal to log in at") ||
		!strings.Contains(out, "az login --use-device-code") {
		t.Errorf("without a login and without a terminal: exit code %d\n%s", code, out)
	}
	stop := watchProcesses(t, m, "eyJhbGciOiJSUzI1NiIsImtpZCI6\n")
	cmd, err := bench.Command(t.Context(), m, "env", "HOME=/root", "TERM=xterm",
		"REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt", "script", "-qefc",
		"aks-flex-node bootstrap", "/root/typescript")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	code := regexp.MustCompile(`enter the code (\S+) to`)
	eventually(t, "the prompt with the device code", func() bool {
		screen, _ := os.ReadFile(filepath.Join(m.Root, "root/typescript"))
		found := code.FindSubmatch(screen)
		if found == nil {
			return false
		}
		azure(t, http.MethodPost, "/approve?code="+string(found[1])+"&user="+lab.User, nil)
		return true
	})
	if err := <-ended; err != nil {
		screen, _ := os.ReadFile(filepath.Join(m.Root, "root/typescript"))
		if _, exited := err.(*exec.ExitError); exited {
			t.Fatalf("bootstrap: %v\n%s", err, screen)
		}
		t.Fatal(err)
	}
	if _, err := bench.CheckPod(t.Context(), "pod-cli", "cli-1"); err != nil {
		t.Error(err)
	}
	stop()
	screen, err := os.ReadFile(filepath.Join(m.Root, "root/typescript"))
	if err != nil {
		t.Error(err)
	}
	quiet(t, m, string(screen))
	if out, code := shell("aks-flex-node unbootstrap --yes"); code != 0 {
		t.Errorf("unbootstrap: %s", out)
	}
	if out, code := shell("azcmagent show --json"); code != 0 || strings.Contains(out, "cli-1") {
		t.Errorf("the Arc agent that was there before is gone, or still connected: %s", out)
	}
}
