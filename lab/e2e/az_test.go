package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// The life of a node with `az aks flex-node`: the real az with the extension, installed as in
// docs/how-to/use-az.md, a real machine and its real Node. An error is one sentence.
func azExtension(t *testing.T) {
	m := bareMachine(t, "edge-az", "azure-cli")
	operates(t, m)
	extend(t, m)
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	a := azOf{m}
	before := snapshot(t.Context(), t, m)
	t.Run("Refusals", a.refusals)
	t.Run("Life", a.life)
	t.Run("Template", a.template)
	same(t, before, snapshot(t.Context(), t, m))
}

// azOf is an operator's computer, which is also the node's machine. The operator's files are below
// operatorsHome.
type azOf struct{ m lab.Machine }

// extend builds the extension and unpacks it where az looks for it.
func extend(t *testing.T, m lab.Machine) {
	t.Helper()
	made, err := exec.Command("go", "run", "-C", "../../packaging", "./az", "-out",
		t.TempDir(), "-version", "v0.1.0").CombinedOutput()
	if err != nil {
		t.Fatalf("cannot make the extension: %v: %s", err, made)
	}
	wheel := strings.TrimSpace(string(made))
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		filepath.Base(wheel): file(t, wheel), "secret": []byte(who.Node.Secret),
	} {
		if err := bench.Write(m, operatorsHome+"/"+name, 0o600, data); err != nil {
			t.Fatal(err)
		}
	}
	// a principal that may only read the cluster
	stranger := "export AZURE_CONFIG_DIR=$HOME/stranger\n" + loginCLI +
		"az login --service-principal -u $CLIENT_ID -p @$HOME/secret --tenant $TENANT -o none\n"
	if out, code := inside(t, m, "bash", "-ec", inOperatorsShell+
		"python3 -m zipfile -e aks_flex_node-*.whl ~/.azure/cliextensions/aks-flex-node\n"+
		stranger); code != 0 {
		t.Fatalf("the extension and a login without rights: %s", out)
	}
}

// run runs a script in the operator's shell; $G holds the cluster's arguments.
func (a azOf) run(t *testing.T, script string) (string, int) {
	t.Helper()
	const shell = inOperatorsShell + `G="-g flexlab -c flexlab"
AZURE_EXTENSION_DIR=$HOME/.azure/cliextensions AZURE_CORE_COLLECT_TELEMETRY=0
AZURE_CORE_ONLY_SHOW_ERRORS=1 AZURE_EXTENSION_USE_DYNAMIC_INSTALL=no
`
	out, code := inside(t, a.m, "bash", "-eo", "pipefail", "-c", shell+script+" </dev/null")
	return strings.TrimSpace(out), code
}

// az runs `az aks flex-node`, which must succeed, and returns the output.
func (a azOf) az(t *testing.T, command string) string {
	t.Helper()
	out, code := a.run(t, "az aks flex-node "+command)
	if code != 0 {
		t.Fatalf("az aks flex-node %s: exit code %d\n%s", command, code, out)
	}
	return out
}

// refusals checks that each error is one sentence: for wrong arguments, a missing role and an
// unreachable cluster. The short form has only the role, which the lab's Azure checks; the
// extension and the provider report the others, as in TestAz of internal/rp/service.
func (a azOf) refusals(t *testing.T) {
	a.refused(t, "AZURE_CONFIG_DIR=$HOME/stranger; ", "create $G -n x", "does not have "+
		"authorization to perform action 'Microsoft.ContainerService/managedClusters/"+
		"flexNodeConfig/write'")
	if !long() {
		return
	}
	a.refused(t, "", "delete $G -n .. --yes", "'..' is not a name.")
	a.refused(t, "", "create $G -n x --labels nonsense", "--labels 'nonsense' is not KEY=VALUE.")
	a.refused(t, "", "create $G -n x -k 1.99.0", "is newer than the cluster's API server, which is "+
		lab.Newest.Kubernetes)
	bindUnreachable(t, lab.SecondClusterID)
	rp(t, 201, http.MethodPut, lab.SecondClusterID,
		desired{"location": "lab", "properties": desired{"kubeconfig": "second"}})
	a.refused(t, "", "create -g flexlab -c second -n down-1 --timeout 2", "The resource "+
		"provider cannot use the cluster 'second' yet, so 'down-1' is stored")
	a.az(t, "delete -g flexlab -c second -n down-1 --yes")
	deleteSecond(t)
}

// refused checks that `az aks flex-node` fails with an error of one sentence.
func (a azOf) refused(t *testing.T, before, command, want string) {
	t.Helper()
	out, code := a.run(t, before+"az aks flex-node "+command)
	if code == 0 || !strings.Contains(out, want) || strings.Contains(out, "Traceback") ||
		strings.Count("\n"+out, "\nERROR: ") != 1 {
		t.Errorf("%s: exit code %d\ngot  %s\nwant %s", command, code, out, want)
	}
}

// life creates a node, uses each command once and deletes the node.
func (a azOf) life(t *testing.T) {
	const node = "$G -n edge-az"
	v := lab.Former.Desired()
	url := a.az(t, "create "+node+" --auth-method servicePrincipal --client-id $CLIENT_ID "+
		"--client-secret @secret --client-tenant $TENANT --poll-endpoint $PROVIDER "+
		"--poll-interval PT10S --labels site=oslo line=7 --max-pods 50 -k "+version(v, "kubernetes")+
		" --containerd-version "+version(v, "containerd")+" --runc-version "+version(v, "runc")+
		" --cni-version "+version(v, "cni")+" --npd-version "+version(v, "npd")+
		" --output-config-url --query properties.configUrl -o tsv")
	if out := a.joins(t, url); !strings.Contains(out, "is Ready") {
		t.Fatalf("the command on the machine says\n%s", out)
	}
	a.az(t, "wait "+node+" --ready --interval 1 --timeout 120")
	a.runs(t, "oslo 50 v"+lab.Former.Kubernetes)
	first := a.az(t, "show "+node+" --query properties.configVersion -o tsv")

	a.az(t, "update "+node+" --set properties.nodeConfig.labels.site=bergen -m 60 -o none")
	a.runs(t, "bergen 60 v"+lab.Former.Kubernetes)
	a.az(t, "wait "+node+" --interval 1 --timeout 180 --custom "+
		"'properties.status.appliedConfigVersion == properties.configVersion'")
	row := strings.Fields(lastLine(a.az(t, "show "+node+" -o table")))
	want := []string{"edge-az", "Succeeded", "True", "True", lab.Former.Kubernetes,
		lab.Former.Kubernetes}
	if len(row) < len(want) || strings.Join(row[:len(want)], " ") != strings.Join(want, " ") {
		t.Errorf("the row of the table is %q, want %q", row, want)
	}

	again := a.az(t, "rotate-token "+node+" --query configUrl -o tsv")
	if was, _ := get(t, url); was != 403 {
		t.Errorf("the previous URL says %d", was)
	}
	if is, _ := get(t, again); is != 200 {
		t.Errorf("the URL of after says %d", is)
	}
	if got := a.az(t, "history "+node+" --query '[].[desired, applied]' -o tsv"); got !=
		"True\tTrue\nFalse\tFalse" {
		t.Errorf("the history is %q", got)
	}
	a.az(t, "rollback "+node+" --config-version "+first+" -o none")
	a.runs(t, "oslo 50 v"+lab.Former.Kubernetes)
	a.leaves(t)
}

// template creates a node with the example ARM template and joins the machine with its output.
func (a azOf) template(t *testing.T) {
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	value := func(v any) desired { return desired{"value": v} }
	parameters, err := json.Marshal(desired{"parameters": desired{
		"clusterName": value("flexlab"), "nodeName": value(a.m.Name),
		"versions": value(lab.Newest.Desired()), "maxPods": value(70),
		"clientId": value(who.Node.ClientID), "clientSecret": value(who.Node.Secret),
		"labels": value(desired{"site": "tromso"}), "outputConfigUrl": value(true),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"parameters.json": parameters,
		"flexnode.json": file(t, "../../examples/arm/flexnode.json")} {
		if err := bench.Write(a.m, operatorsHome+"/"+name, 0o600, data); err != nil {
			t.Fatal(err)
		}
	}
	url, code := a.run(t, "az deployment group create -g flexlab -n first -f flexnode.json "+
		"-p parameters.json --query properties.outputs.configUrl.value -o tsv")
	if code != 0 {
		t.Fatalf("az deployment group create: exit code %d\n%s", code, url)
	}
	if out := a.joins(t, url); !strings.Contains(out, "is Ready") {
		t.Fatalf("the command on the machine says\n%s", out)
	}
	a.az(t, "wait $G -n edge-az --ready --interval 1 --timeout 120")
	a.runs(t, "tromso 70 v"+lab.Newest.Kubernetes)
	if out, _ := a.run(t, "az deployment operation group list -g flexlab -n first "+
		"--query '[].properties.provisioningState' -o tsv"); out != "Succeeded\nSucceeded" {
		t.Errorf("the operations of the deployment: %q", out)
	}
	// Its principal has no role to read Resource Manager, so an operator runs unbootstrap.
	must(t, a.m, "unbootstrap", "--yes")
	a.az(t, "delete $G -n edge-az --yes")
	a.az(t, "wait $G -n edge-az --deleted --interval 1 --timeout 60")
}

// version returns a version as a string.
func version(versions map[string]any, name string) string {
	is, _ := versions[name].(string)
	return is
}

// lastLine returns the last line of a text.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// joins runs the agent with a configuration URL on the machine.
func (a azOf) joins(t *testing.T, url string) string {
	t.Helper()
	out, code := inside(t, a.m, "sh", "-c", "echo '"+url+"' | aks-flex-node agent --config-url-file -")
	if code != 0 {
		t.Fatalf("aks-flex-node agent: exit code %d\n%s", code, out)
	}
	return out
}

// runs waits until the Node has a site, capacity for pods, and a version of kubelet.
func (a azOf) runs(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the Node to be "+want, func() bool {
		n := nodeOf(t, a.m.Name)
		return want == fmt.Sprintf("%s %s %s", n.Labels["site"], n.Status.Capacity.Pods(),
			n.Status.NodeInfo.KubeletVersion)
	})
}

// leaves deletes the node; its machine leaves the cluster and waits for another configuration.
func (a azOf) leaves(t *testing.T) {
	t.Helper()
	a.az(t, "delete $G -n "+a.m.Name+" --yes")
	a.az(t, "wait $G -n "+a.m.Name+" --deleted --interval 1 --timeout 60")
	eventually(t, "the machine to wait for another configuration", func() bool {
		out := output(t, a.m, "systemctl", "show", "-p", "StatusText", service)
		return strings.Contains(out, "waiting for a configuration")
	})
	if out, err := bench.Kubectl(t.Context(), "", "get", "node", a.m.Name); err == nil {
		t.Errorf("the Node is left: %s", out)
	}
	output(t, a.m, "systemctl", "disable", "--now", service)
}
