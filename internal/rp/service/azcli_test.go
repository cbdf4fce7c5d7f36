package service

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// after holds the commands of "After: One-Command Setup" in document 004, word for word.
const after = `CONFIG_URL=$(az aks flex-node create \
    --cluster my-cluster \
    --resource-group my-rg \
    --name edge-node-1 \
    --auth-method bootstrapToken \
    --output-config-url \
    --query "properties.configUrl" -o tsv)

aks-flex-node agent --config-url "$CONFIG_URL"

az aks flex-node update \
    --cluster my-cluster \
    --resource-group my-rg \
    --node edge-node-1 \
    --kubernetes-version 1.31.0
`

// theirAgent stands in for the machine: it records its arguments.
const theirAgent = "#!/bin/sh\necho \"$1 $2\" >agent.args\nprintf %s \"$3\" >agent.url\n"

// The extension's commands, one after the other, as people use them.
func TestAz(t *testing.T) {
	w := newAzWorld(t)
	for _, part := range []struct {
		name string
		run  func(*azWorld, *testing.T)
	}{
		{"Documented", (*azWorld).documented}, {"Life", (*azWorld).life},
		{"Revoke", (*azWorld).revoke}, {"Direct", (*azWorld).askedDirectly},
		{"Secrets", (*azWorld).secrets}, {"Existing", (*azWorld).existing},
		{"Fleet", (*azWorld).fleet}, {"FleetRefusals", (*azWorld).fleetRefusals},
		{"Replace", (*azWorld).replaced}, {"Identities", (*azWorld).identities},
		{"Unfollowed", (*azWorld).unfollowed}, {"Diagnose", (*azWorld).diagnose},
		{"Refusals", (*azWorld).refusals}, {"NoProvider", (*azWorld).noProvider},
		{"ClusterDown", (*azWorld).clusterIsDown}, {"Deployments", (*azWorld).deployments},
		{"Linter", (*azWorld).linter}, {"Cluster", (*azWorld).preparesCluster},
		{"Added", (*azWorld).added},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(w.sub(t), t) })
	}
}

func (w *azWorld) sub(t *testing.T) *azWorld {
	other := *w
	other.t = t
	return &other
}

// The commands of the document run unchanged, and the machine gets a URL that works.
func (w *azWorld) documented(t *testing.T) {
	must(0, os.WriteFile(filepath.Join(w.dir, "aks-flex-node"), []byte(theirAgent), 0o755))
	out := w.must(after)
	has(t, "the update's answer", out, `"kubernetes": "1.31.0"`)
	args := must(os.ReadFile(filepath.Join(w.dir, "agent.args")))
	url := must(os.ReadFile(filepath.Join(w.dir, "agent.url")))
	equal(t, "the agent's arguments", string(args), "agent --config-url\n")
	// the update has revoked it
	w.fetch(string(url), 403)
	again := w.must(`az aks flex-node get-config-url $G -n edge-node-1 -o tsv 2>/dev/null`)
	has(t, "the bundle", w.fetch(again, 200), `"1.31.0"`)
}

// ready adds the machine's Node.
func (w *azWorld) ready(name string) {
	must(w.cluster.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, metav1.CreateOptions{}))
}

func (w *azWorld) life(t *testing.T) {
	for _, step := range []struct{ script, want string }{
		{`az aks flex-node create $G -n edge-1 --labels site=oslo line=7 -m 50 --output-url \
  --node-taints "a=b:NoSchedule,c:NoExecute" --drift-policy repair \
  --drift-policies unit=report sysctl=off --drain-force --drain-delete-empty-dir false \
  --metadata-access allow \
  --query "[name, properties.nodeConfig.labels.line, properties.nodeConfig.taints[1],
    starts_with(properties.configUrl, '$DIRECT')]" -o tsv | tr '\n' ' '`,
			"edge-1 7 c:NoExecute true"},
		{"az aks flex-node create $G -n edge-2 --no-wait", ""},
		{"az aks flex-node wait $G -n edge-2 --created --interval 1", ""},
		{"az aks flex-node list $G --query '[].name' -o tsv | tr '\n' ' '", "edge-1 edge-2 edge-node-1"},
		{`az aks flex-node list $G --filter "labels['line'] eq '7'" --query '[].name' -o tsv`, "edge-1"},
		{"az aks flex-node update $G -n edge-1 --set properties.nodeConfig.labels.site=bergen -m 60 " +
			`--query "[properties.nodeConfig.labels, properties.nodeConfig.maxPods]" -o json |
  tr -d ' \n'`, `[{"line":"7","site":"bergen"},60]`},
		{"az aks flex-node update $G -n edge-1 --labels '' --node-taints '' -o json " +
			"--query properties.nodeConfig | tr -d ' \n'", `{"maxPods":60}`},
		{`N=$(az aks flex-node show $G -n edge-1 --query id -o tsv)
az aks flex-node show --ids $N -o tsv \
  --query "[properties.driftPolicy, properties.driftPolicies.sysctl,
    properties.upgradePolicy.drainOptions.force,
    properties.upgradePolicy.drainOptions.deleteEmptyDir,
    properties.network.metadata]" | tr '\n' ' '`,
			"repair off true false allow"},
		{"az aks flex-node update $G -n edge-1 --metadata-access block -o tsv " +
			"--query '[properties.network.metadata, properties.config.network.metadata]' " +
			"| tr '\n' ' '", "block block"},
		{"az aks flex-node history $G -n edge-1 -o table | sed 1,2d | wc -l", "4"},
		{`V=$(az aks flex-node history $G -n edge-1 --query '[-1].configVersion' -o tsv)
az aks flex-node rollback $G -n edge-1 --config-version $V \
  --query properties.nodeConfig.labels.line -o tsv`, "7"},
		{"az aks flex-node rotate-token $G -n edge-1 --query 'length(@)' -o tsv", "3"},
	} {
		equal(t, step.script, w.must(step.script), step.want)
	}
	w.ready("edge-1")
	w.must("az aks flex-node wait $G -n edge-1 --ready --interval 1 --timeout 600")
	table := w.must("az aks flex-node show $G -n edge-1 -o table")
	has(t, "the table", table, "Name", "State", "Ready", "Kubernetes", "edge-1", "Succeeded")
	w.must("az aks flex-node delete $G -n edge-1 --yes")
	w.must("az aks flex-node wait $G -n edge-1 --deleted --interval 1")
	_, told, code := w.run("az aks flex-node delete $G -n edge-1 --yes")
	has(t, "what a repeated deletion says", told, "az role assignment list")
	equal(t, "its exit code", code, 0)
	if _, errors, code := w.run("az aks flex-node show $G -n edge-1"); code != 3 ||
		!strings.Contains(errors, "edge-1") {
		t.Errorf("a node that is gone: exit code %d\n%s", code, errors)
	}
}

// With --revoke-now a machine may not write any more, at once.
func (w *azWorld) revoke(t *testing.T) {
	for name, command := range map[string]string{"lost-1": "rotate-token", "lost-2": "delete --yes"} {
		w.must("az aks flex-node create $G -o none -n " + name)
		node, now := subscription+"/my-rg/my-cluster/"+name, time.Now()
		must(w.store.Update(t.Context(), "test", nil, func(v *store.View) error {
			return w.store.Certificates.Put(v, node, flexnode.Certificates{}.Note(
				flexnode.Certificate{ID: "a", Ends: now.Add(time.Hour)}, "", true, now))
		}))
		for _, option := range []string{"", " --revoke-now"} {
			w.must("az aks flex-node " + command + option + " $G -o none -n " + name)
			row := must(w.store.Certificates.Get(t.Context(), node))
			revoked := row.Value.IsRevoked("a", time.Now().Add(time.Second))
			equal(t, "revoked after "+command+option, revoked, option != "")
		}
	}
	w.fails("az aks flex-node create $G -n lost-2", "--accept-old-certificate")
	w.must("az aks flex-node create $G -n lost-2 --accept-old-certificate -o none")
	_, told, _ := w.run("az aks flex-node delete $G -n lost-2 --yes")
	has(t, "what the deletion says", told,
		"The name 'lost-2' is free again when the machine has left, or at 20")
}

// diagnose requests a diagnosis of a machine, and answers as the machine.
func (w *azWorld) diagnose(t *testing.T) {
	w.must("az aks flex-node create $G -n edge-9 -o none")
	const key = subscription + "/my-rg/my-cluster/edge-9"
	answers := func(d api.Diagnosed) {
		must(w.store.Update(t.Context(), "diagnosis taken", nil, func(v *store.View) error {
			n, row := w.store.Nodes.Row(v, key).Value, w.store.Diagnoses.Row(v, key).Value
			d.ID = row.ID
			n, row, err := n.Diagnosed(row, d, time.Now())
			return errors.Join(err, w.store.Nodes.Put(v, key, n), w.store.Diagnoses.Put(v, key, row))
		}))
	}
	asks := func(d api.Diagnosed, script string, meanwhile ...func()) string {
		t.Helper()
		before := must(w.store.Diagnoses.Get(t.Context(), key)).Value.ID
		done := make(chan string)
		go func() {
			out, errs, code := w.run(script)
			done <- fmt.Sprint(out, errs, code)
		}()
		for must(w.store.Diagnoses.Get(t.Context(), key)).Value.ID == before {
			select {
			case out := <-done:
				return out
			case <-time.After(50 * time.Millisecond):
			}
		}
		for _, happens := range meanwhile {
			happens()
		}
		answers(d)
		return <-done
	}
	out := asks(api.Diagnosed{Findings: []api.Finding{{Type: "KubeletRunning", Verdict: "error",
		Owner: "machine", Message: "it does not run"}, {Type: "SwapOff", Verdict: "ok"}}},
		"az aks flex-node diagnose $G -n edge-9 -o table")
	if !strings.Contains(out, "KubeletRunning") || strings.Contains(out, "SwapOff") {
		t.Errorf("doctor: %s", out)
	}
	out = asks(api.Diagnosed{SupportBundle: []byte("age-encryption.org/v1")},
		"az aks flex-node diagnose $G -n edge-9 --kind supportBundle --file out.age -o tsv "+
			"--query supportBundle; stat -c %a out.age; cat out.age")
	has(t, "the bundle", out, "600\nage-encryption.org/v1")
	out = asks(api.Diagnosed{Refused: "no key"},
		"az aks flex-node diagnose $G -n edge-9 --kind supportBundle --file other.age")
	if !strings.Contains(out, "refuses: no key") || !strings.HasSuffix(out, "1") {
		t.Errorf("refused: %s", out)
	}
	w.fails("az aks flex-node diagnose $G -n edge-9 --kind supportBundle", "--file")
	w.fails("az aks flex-node diagnose $G -n edge-9 --kind supportBundle --file out.age", "exists")
	out = asks(api.Diagnosed{}, "az aks flex-node diagnose $G -n edge-9 --kind supportBundle "+
		"--file other.age", func() {
		must(w.store.Update(t.Context(), "diagnosis asked for", nil, func(v *store.View) error {
			n, row, err := w.store.Nodes.Row(v, key).Value.Diagnosing(api.Doctor, "dev", time.Now())
			return errors.Join(err, w.store.Nodes.Put(v, key, n), w.store.Diagnoses.Put(v, key, row))
		}))
	})
	if !strings.Contains(out, "which replaces this one") || !strings.HasSuffix(out, "1") {
		t.Errorf("asked by another caller: %s", out)
	}
	w.must("az aks flex-node diagnose $G -n edge-9 --no-wait")
	equal(t, "one that is not waited for", must(w.store.Diagnoses.Get(t.Context(), key)).Value.State,
		"Requested")
	answers(api.Diagnosed{Findings: []api.Finding{{Type: "KubeletRunning", Verdict: "error"}}})
	has(t, "its answer", w.must("az aks flex-node diagnose $G -n edge-9 --last -o table"),
		"KubeletRunning")
}

// A provider is used directly, without Resource Manager: by an option, and by a default.
func (w *azWorld) askedDirectly(t *testing.T) {
	before := w.must("az aks flex-node create $G -n own-1 --endpoint $DIRECT --query name -o tsv")
	behind := w.sim.Provider.URLs
	w.sim.Provider.URLs = []string{"http://127.0.0.1:1"} // nothing is behind Resource Manager now
	defer func() { w.sim.Provider.URLs = behind }()
	w.must(`az config set defaults.flexnode_endpoint=$DIRECT defaults.flexnode_cluster=my-cluster \
  --only-show-errors`)
	got := w.must("az aks flex-node show -g my-rg -n own-1 --query name -o tsv")
	w.must("az config unset defaults.flexnode_endpoint defaults.flexnode_cluster --only-show-errors")
	equal(t, "what is created and shown", before+" "+got, "own-1 own-1")
	w.must("az config unset defaults.flexnode_audience --only-show-errors")
	w.fails("az aks flex-node show $G -n own-1 --endpoint $DIRECT",
		"az configure --defaults flexnode_audience=ID")
	w.must("az config set defaults.flexnode_audience=api://" + azProvider.ClientID +
		" --only-show-errors")
}

// A secret comes from a file, is in no answer and no log, and is kept by an update.
func (w *azWorld) secrets(t *testing.T) {
	write(t, w.dir, "secret.txt", "canary-of-az")
	const create = `az aks flex-node create $G -n sp-1 --auth-method servicePrincipal \
  --client-id 11111111-2222-3333-4444-555555555555 `
	out, errors, code := w.run(create + "--client-secret @secret.txt --output-url --debug")
	if code != 0 || !strings.Contains(out, `"continuousMonitoring": true`) {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errors)
	}
	if strings.Contains(out+errors, "canary-of-az") || strings.Contains(errors, "sig=") {
		t.Errorf("a secret is in the output:\n%s", errors)
	}
	url := w.must("az aks flex-node get-config-url $G -n sp-1 -o tsv 2>/dev/null")
	has(t, "the bundle", w.fetch(url, 200), "canary-of-az")
	w.must("az aks flex-node update $G -n sp-1 -m 33 -o none")
	w.fails(create, "--client-secret @FILE") // and there is no terminal
}

// A create of an existing node changes nothing. With --replace it asks, and then replaces all.
func (w *azWorld) existing(t *testing.T) {
	const create = "az aks flex-node create $G -n there-1 "
	const shown = "az aks flex-node show $G -n there-1 -o json --query '[properties.configVersion," +
		"properties.azureAuth.method,properties.nodeConfig.maxPods]'"
	write(t, w.dir, "there.txt", "secret")
	w.must(create + "--auth-method servicePrincipal --client-secret @there.txt -m 33 " +
		"--client-id 11111111-2222-3333-4444-555555555555 -o none")
	before := w.must(shown)
	for _, want := range []string{"'there-1' already exists and was not changed.", "default",
		"az aks flex-node update -g my-rg -c my-cluster -n there-1", "--replace",
		"az aks flex-node get-config-url -g my-rg -c my-cluster -n there-1"} {
		w.fails(create+"--output-url", want)
	}
	w.fails(create+"--replace", "Use --yes.")
	equal(t, "the node", w.must(shown), before)
	equal(t, "replaced", w.must(create+"--replace --yes -o tsv --query '[properties.azureAuth.method,"+
		"properties.nodeConfig.maxPods]' | tr '\n' ' '"), "bootstrapToken None")
}

// An error is one sentence, and comes before any request if possible.
func (w *azWorld) refusals(t *testing.T) {
	w.must("az aks flex-node create $G -n kept-1 -o none")
	w.refused([]refusal{
		{"", "create $G -n x --labels nonsense", "--labels 'nonsense' is not KEY=VALUE."},
		{"", "create $G -n x --node-taints a", "--node-taints 'a' is not KEY=VALUE:EFFECT"},
		{"", "create $G -n x --drift-policies unit", "--drift-policies 'unit' is not KEY=VALUE."},
		{"", "create $G -n x --drift-policies files=off", "must be one of path, unit, sysctl,"},
		{"", "create $G -n x --maintenance-window start=1:00", "--maintenance-window needs start"},
		{"", "create $G -n x --kubelet-config none.json", "'none.json' cannot be read"},
		{"", "create $G -n x --client-secret s", "goes with --auth-method servicePrincipal only."},
		{"", "create $G -n x --client-id 1", "--client-id goes with --auth-method servicePrincipal " +
			"or managedIdentity only."},
		{"", "create $G -n x --principal-id 1", "--principal-id goes with --auth-method " +
			"servicePrincipal or managedIdentity or arc only."},
		{"", "create $G -n x --auth-method arcane", "'arcane' is not a valid value"},
		{"", "create $G -n x --output-url --no-wait", "cannot be combined with --no-wait."},
		{"", "create $G -n x --endpoint http://h", "'http://h' is not an https URL of a host."},
		{"", "create $G -n x -k 9", "The Kubernetes version '9' is not a version x.y.z."},
		{"", "create $G -n x -k 1.99.0", "is newer than the cluster's API server, which is 1.34.4"},
		{"", "create -g my-rg -c no-cluster -n x", "no-cluster"},
		{"", "wait $G -n x", "Specify what to wait for"},
		{"", "delete $G -n x", "--yes"},
		{"", "rollback $G -n kept-1 --config-version 1", "configVersion 1 does not belong to the node"},
		{"stranger", "create $G -n x", "does not have authorization to perform action " +
			"'Microsoft.ContainerService/managedClusters/flexNodeConfig/write'"},
		{"", "show $G -n x --endpoint https://127.0.0.1:1", "The endpoint cannot be reached"},
		{"stranger", "get-config-url $G -n kept-1", "listConfigUrl/action'"},
	})
}

// A server that is no resource provider gets a clear error, regardless of its answer.
func (w *azWorld) noProvider(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch at := r.URL.Path; {
		case strings.HasSuffix(at, "/page"):
			_, _ = io.WriteString(rw, "<html></html>")
		case strings.Contains(at, "/list/"):
			_, _ = io.WriteString(rw, "[]")
		case strings.Contains(at, "/empty"): // as a proxy that answers every request
			_, _ = io.WriteString(rw, "{}")
		case strings.HasSuffix(at, "/deaf"): // it accepts everything and stores nothing
			_, _ = io.WriteString(rw, `{"properties": {"provisioningState": "Succeeded"}}`)
		case strings.HasSuffix(at, "/half"):
			_, _ = io.WriteString(rw, `{"properties": {"provisioningState": "Failed"}}`)
		case strings.HasSuffix(at, "/half/listConfigUrl"): // nothing
		case strings.HasSuffix(at, "/unknown"):
			rw.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(rw, `{"error": {"code": "MissingSubscriptionRegistration",
				"message": "It is not registered."}}`)
		case strings.HasSuffix(at, "/moved"):
			http.Redirect(rw, r, "https://elsewhere.example/", http.StatusFound)
		default:
			rw.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(rw, `{"error": "teapot"}`)
		}
	}))
	t.Cleanup(server.Close)
	at := " --endpoint " + server.URL
	var all []refusal
	for _, command := range []string{
		"show $G -n page", "list -g my-rg -c list", "create $G -n moved", "create $G -n empty",
		"update $G -n empty --max-pods 50", "show $G -n empty", "list -g my-rg -c empty",
		"wait $G -n empty --ready", "history $G -n empty", "diff $G -n empty",
		"summary -g my-rg -c empty", "pause -g my-rg -c empty", "allow-versions -g my-rg -c empty",
		"get-config-url $G -n empty", "create $G -n half --output-config-url",
		"rotate-token $G -n empty", "diagnose $G -n empty", "wait $G -n half --ready",
	} {
		all = append(all, refusal{"", command + at,
			"The endpoint does not answer as a resource provider does"})
	}
	w.refused(append(all, refusal{"", "delete $G -n teapot --yes" + at, "teapot"},
		refusal{"", "pause -g my-rg -c deaf" + at, "has not stored rolloutPolicy.paused of 'deaf'"},
		refusal{"", "show $G -n unknown" + at, "With --endpoint, instead: az rest --method post"}))
}

// refusal is a command that fails, and a part of its error.
type refusal struct{ who, command, want string }

// inShort reports whether the short form has the i-th row of a table of refusals: every third. Each
// runs az for a second; all rows check that az reports one error, of the extension or of a server.
func inShort(i int) bool { return os.Getenv("LONG") != "" || i%3 == 0 }

func (w *azWorld) refused(all []refusal) {
	w.t.Helper()
	for i, tt := range all {
		if !inShort(i) {
			continue
		}
		s := w.sub(w.t)
		if tt.who != "" {
			s.who = tt.who
		}
		s.fails("az aks flex-node "+tt.command, tt.want)
	}
}

// fails checks that a command prints only one message, the expected one.
func (w *azWorld) fails(script, want string) {
	w.t.Helper()
	out, errors, code := w.run(script + " </dev/null")
	if code == 0 || out != "" || !strings.Contains(errors, want) ||
		strings.Count("\n"+errors, "\nERROR: ") != 1 || strings.Contains(errors, "Traceback") {
		w.t.Errorf("%s, %s: exit code %d\ngot  %s%s\nwant %s", w.who, script, code, out, errors, want)
	}
}

// A cluster that is down lets no caller wait for ever, and the request is carried out later.
func (w *azWorld) clusterIsDown(t *testing.T) {
	w.cluster.Down.Store(true)
	const stored = "The resource provider cannot use the cluster 'my-cluster' yet, so 'down-1' is " +
		"stored"
	w.fails("az aks flex-node create $G -n down-1 --output-url --timeout 1", stored)
	_, errors, code := w.run("az aks flex-node rotate-token $G -n down-1 --timeout 1")
	has(t, "the error", errors, stored+", and its URL is made when it can.",
		"The reason: az aks flex-node show -g my-rg -c my-cluster -n down-1 "+
			"--query properties.status.join.reason",
		"az aks flex-node get-config-url -g my-rg -c my-cluster -n down-1")
	equal(t, "it succeeds", code == 0, false)
	w.cluster.Down.Store(false)
	w.must("az aks flex-node wait $G -n down-1 --created --interval 1 --timeout 600")
	url := w.must("az aks flex-node get-config-url $G -n down-1 -o tsv 2>/dev/null")
	equal(t, "there is no URL when the cluster is back", url == "", false)
}

// linter checks the rules of azdev's linter, which is not available here.
func (w *azWorld) linter(t *testing.T) {
	write(t, w.dir, "linter.py", string(must(os.ReadFile("../../../packaging/az/linter.py"))))
	equal(t, "the linter says", w.must("/usr/bin/python3 linter.py"), "")
}

// added installs the wheel with az itself.
func (w *azWorld) added(t *testing.T) {
	if out, _, _ := w.run("/usr/bin/python3 -m pip --version"); out == "" {
		t.Skip("there is no pip here (Debian: apt-get install python3-pip)")
	}
	out := w.must(`export AZURE_EXTENSION_DIR=$PWD/added
az extension add --source aks_flex_node-0.1.0-py3-none-any.whl --yes --only-show-errors
az extension list --query '[].[name, version]' -o tsv
az aks flex-node show -h | head -3`)
	has(t, "what az says", out, "aks-flex-node\t0.1.0", "flex-node show")
}

// theirPreparer stands in for flexnode-rp: it records its arguments and its input.
const theirPreparer = `#!/bin/sh
eval file=\$$#
echo "${@%$file}" >preparer.args
stat -c '%a %n' "$file" | tee preparer.file
cp "$file" preparer.kubeconfig
exit $(cat preparer.code)
`

// losesItsTerminal stands in for flexnode-rp while the terminal is closed.
const losesItsTerminal = `#!/bin/sh
eval file=\$$#
echo "$file" >preparer.file
kill -HUP $PPID
exec sleep 600
`

// preparesCluster checks that enable and disable give the caller's kubeconfig to flexnode-rp, and
// end with its exit code; without it they tell what to install.
func (w *azWorld) preparesCluster(t *testing.T) {
	w.sim.AddCluster(azuresim.Cluster{ID: azCluster, AdminKubeconfig: "the administrator's",
		Server: "https://api.example", Entra: true})
	_, errors, code := w.run("az aks flex-node enable -g my-rg -n my-cluster --program no-program")
	if code != 1 || !strings.Contains(errors, "Install the package flexnode-rp") {
		t.Errorf("without the program: exit code %d: %s", code, errors)
	}
	write(t, w.dir, "preparer.code", "0")
	program := write(t, w.dir, "flexnode-rp", theirPreparer)
	must(0, os.Chmod(program, 0o700))
	for _, tt := range []struct{ command, code, args, kubeconfig string }{
		{"enable -g my-rg -n my-cluster --admin --yes --kube-proxy no --provider 1-2", "0",
			"cluster prepare --provider=1-2 --kube-proxy=no --yes --kubeconfig", "the administrator's"},
		{"enable $G", "0", "cluster prepare --kubeconfig", "kubelogin"},
		{"enable $G --dry-run", "2", "cluster prepare --dry-run --kubeconfig", "https://api.example"},
		{"disable $G -y", "0", "cluster unprepare --yes --kubeconfig", "kubelogin"},
	} {
		write(t, w.dir, "preparer.code", tt.code)
		out, errors, code := w.run("az aks flex-node " + tt.command)
		read := func(name string) string {
			return strings.TrimSpace(string(must(os.ReadFile(filepath.Join(w.dir, name)))))
		}
		file := strings.TrimPrefix(read("preparer.file"), "600 ")
		_, err := os.Stat(file)
		got := strings.TrimSuffix(read("preparer.args"), " "+file)
		if fmt.Sprint(code) != tt.code || got != tt.args ||
			!strings.Contains(read("preparer.kubeconfig"), tt.kubeconfig) || !os.IsNotExist(err) ||
			!filepath.IsAbs(file) || !strings.Contains(out, file) {
			t.Errorf("%s: exit code %d, %q, %s, %v\n%s%s", tt.command, code, got, file, err, out, errors)
		}
	}
	write(t, w.dir, "flexnode-rp", losesItsTerminal)
	_, errors, code = w.run("az aks flex-node enable $G --admin")
	file := strings.TrimSpace(string(must(os.ReadFile(filepath.Join(w.dir, "preparer.file")))))
	if _, err := os.Stat(file); code != 1 || !os.IsNotExist(err) || !filepath.IsAbs(file) {
		t.Errorf("without its terminal: exit code %d, %q, %v\n%s", code, file, err, errors)
	}
	w.refused([]refusal{{"stranger", "enable $G", "listClusterUserCredential/action'"}})
}
