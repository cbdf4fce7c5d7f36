package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

// The ARM template of the examples, deployed by az: with the URL of its output a machine becomes a
// Ready node.
func deployment(t *testing.T) {
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile("../../examples/arm/flexnode.json")
	if err != nil {
		t.Fatal(err)
	}
	value := func(v any) desired { return desired{"value": v} }
	parameters, err := json.Marshal(desired{"parameters": desired{
		"clusterName": value(lab.ClusterID[strings.LastIndex(lab.ClusterID, "/")+1:]),
		"nodeName":    value("arm-1"), "versions": value(lab.Newest.Desired()),
		"clientId": value(who.Node.ClientID), "clientSecret": value(who.Node.Secret),
		"labels": value(desired{"by": "template"}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := bareMachine(t, "arm-1", "azure-cli")
	operates(t, m)
	for name, data := range map[string][]byte{"flexnode.json": template, "arm-1.json": parameters} {
		if err := bench.Write(m, operatorsHome+"/"+name, 0o600, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := bench.Install(m, agent); err != nil {
		t.Fatal(err)
	}
	output(t, m, "systemctl", "daemon-reload")
	t.Cleanup(func() { rp(t, 200, http.MethodDelete, rpNode("arm-1"), nil, 204) })
	out, code := inside(t, m, "bash", "-eo", "pipefail", "-c", inOperatorsShell+
		`G=$(cut -d/ -f5 <<<"$CLUSTER")
az deployment group create -g $G -f flexnode.json -p arm-1.json -n arm-1 \
  --query properties.outputs.configUrl.value -o tsv | aks-flex-node agent --config-url -
kubectl wait node/arm-1 --for=condition=Ready --timeout=60s
kubectl get node arm-1 -o jsonpath='{.metadata.labels.by} {.status.capacity.pods}{"\n"}'
az deployment operation group list -g $G -n arm-1 --query '[].properties.provisioningState' -o tsv
`)
	if code != 0 || !strings.HasSuffix(out, "node/arm-1 condition met\ntemplate 110\n"+
		"Succeeded\nSucceeded\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
