package service

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

// az deploys the template of the examples, with only a role for templates and nodes. Deployed again
// when the machine has its URL, what-if shows no change, and the node keeps its configuration.
// Validation, previews, operations and errors of deployments are those of Azure: lab/azuresim.
func (w *azWorld) deployments(t *testing.T) {
	w.who = azDeployer.Name
	write(t, w.dir, "flexnode.json", string(must(os.ReadFile("../../../examples/arm/flexnode.json"))))
	const secret = "canary-of-template"
	write(t, w.dir, "arm-1.json", `{"parameters": {"clusterName": {"value": "my-cluster"},
		"nodeName": {"value": "arm-1"}, "clientSecret": {"value": "`+secret+`"},
		"clientId": {"value": "11111111-2222-3333-4444-555555555555"}}}`)
	const (
		with    = " -g my-rg -f flexnode.json -p arm-1.json "
		create  = "az deployment group create" + with
		node    = "az aks flex-node show $G -n arm-1 -o json --query "
		version = node + "'[eTag, properties.configVersion, properties.azureAuth]'"
	)
	out, errors, code := w.run(create + "-p outputConfigUrl=true -n first --debug " +
		"--query properties.outputs.configUrl.value -o tsv")
	if code != 0 || strings.Contains(out, secret) {
		t.Fatalf("create: exit code %d\n%s\n%s", code, out, errors)
	}
	has(t, "the bundle", w.fetch(strings.TrimSpace(out), 200), secret, `"maxPods": 110`)
	before := w.must(version)
	equal(t, "what-if announces", w.must("az deployment group what-if"+with+"--no-pretty-print "+
		"--query 'changes[].changeType' -o tsv"), "NoChange")
	for range 2 {
		equal(t, "the output", w.must(create+"-n same -o tsv "+
			"--query properties.[provisioningState,outputs.configUrl.value] | tr '\n' ' '"), "Succeeded")
	}
	equal(t, "the version", w.must(version), before)
	equal(t, "the configurations that the node has had",
		w.must("az aks flex-node history $G -n arm-1 --query 'length(@)' -o tsv"), "1")
	w.must(create + "-p maxPods=50 -n again -o none")
	equal(t, "after a change", w.must(node+"'properties.[provisioningState, nodeConfig.maxPods]' "+
		"| tr -d ' \n'"), `["Succeeded",50]`)
}

// deployed makes the requests of a template about a resource.
type deployed struct{ *world }

func (d deployed) Reference(id, version string, _ bool) (any, error) {
	_, answer := d.must(200, "GET", id+"?api-version="+version, "")
	return template.Decode([]byte(answer))
}

func (d deployed) List(action, id, version string, _ any) (any, error) {
	_, answer := d.must(200, "POST", id+"/"+action+"?api-version="+version, "{}")
	return template.Decode([]byte(answer))
}

// The provider accepts the PUTs of the examples' ARM template, and returns the URL of its output.
func TestTemplateOfTheExamples(t *testing.T) {
	read := must(template.Read(must(os.ReadFile("../../../examples/arm/flexnode.json"))))
	plan := must(read.Bind([]byte(`{"clusterName": {"value": "Factory"},
		"nodeName": {"value": "edge-1"}, "clientSecret": {"value": "secret"},
		"clientId": {"value": "11111111-2222-3333-4444-555555555555"},
		"monitoring": {"value": {"endpoint": "`+publicURL+`", "interval": "PT1M"}},
		"labels": {"value": {"site": "oslo"}}, "outputConfigUrl": {"value": true}}`), template.Place{
		Subscription:  map[string]any{"subscriptionId": subscription},
		ResourceGroup: map[string]any{"name": "Edge"}}))
	resource := plan.Resources[0]
	inWorld(t, func(t *testing.T, w *world) {
		body := must(json.Marshal(must(plan.Body(resource, deployed{w}))))
		_, shown := w.must(201, "PUT", resource.ID+"?api-version="+resource.Version, string(body))
		if n := shownNode(t, shown); n.Properties.NodeConfig.Labels["site"] != "oslo" ||
			!n.Properties.ContinuousMonitoring || n.Properties.Monitoring.Endpoint != publicURL ||
			n.Properties.Monitoring.Interval != "PT1M" {
			t.Errorf("the node is %s", shown)
		}
		outputs := string(must(json.Marshal(must(plan.Outputs(deployed{w})))))
		has(t, "the outputs", outputs, `"value":"`+publicURL)
	})
}
