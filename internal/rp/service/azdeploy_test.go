package service

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

const flexNodeConfig = "Microsoft.ContainerService/managedClusters/flexNodeConfig"

// The roles of a deployer: with everything that the example needs, without write, without list.
var azDeployerRoles = []azuresim.Role{
	{ID: "deployer", Actions: []string{"Microsoft.Resources/deployments/*", flexNodeConfig + "/*"}},
	{ID: "no-write", Actions: []string{"Microsoft.Resources/deployments/*", flexNodeConfig + "/read"}},
	{ID: "no-list", Actions: []string{"Microsoft.Resources/deployments/*", flexNodeConfig + "/read",
		flexNodeConfig + "/write"}},
}

// role gives the deployer one of the roles.
func (w *azWorld) role(id string) {
	w.sim.Revoke(azDeployer.ObjectID)
	w.sim.Assign(azuresim.Assignment{Scope: "/subscriptions/" + subscription +
		"/resourceGroups/my-rg", RoleID: id, PrincipalID: azDeployer.ObjectID})
}

// parameterFile writes a file with parameters of the example.
func (w *azWorld) parameterFile(name string, values map[string]any) {
	w.t.Helper()
	parameters := map[string]any{}
	for key, value := range values {
		parameters[key] = map[string]any{"value": value}
	}
	write(w.t, w.dir, name, string(must(json.Marshal(map[string]any{"parameters": parameters}))))
}

// az deploys the template of the examples, with only a role for templates and nodes.
func (w *azWorld) deployments(t *testing.T) {
	w.who = azDeployer.Name
	w.role("deployer")
	text := must(os.ReadFile(filepath.FromSlash("../../../examples/arm/flexnode.json")))
	write(t, w.dir, "flexnode.json", "// az sends comments as they are\n"+string(text))
	const secret = "canary-of-template"
	values := map[string]any{"clusterName": "my-cluster", "nodeName": "arm-1",
		"clientId": "11111111-2222-3333-4444-555555555555", "clientSecret": secret,
		"outputConfigUrl": true}
	w.parameterFile("arm-1.json", values)
	const with = " -g my-rg -f flexnode.json -p arm-1.json "
	equal(t, "validate answers", w.must("az deployment group validate"+with+
		"--query properties.provisioningState -o tsv"), "Succeeded")
	preview := w.must("az deployment group what-if" + with)
	if !strings.Contains(preview, "+ "+strings.Replace(flexNodeConfig, "/flex", "/my-cluster/flex", 1)+
		"/arm-1 [2026-05-01-preview]") || !strings.Contains(preview, "Resource changes: 1 to create.") ||
		strings.Contains(preview, secret) {
		t.Errorf("what-if prints\n%s", preview)
	}
	out, errors, code := w.run("az deployment group create" + with + "-n first --debug " +
		"--query properties.outputs.configUrl.value -o tsv")
	if code != 0 || strings.Contains(out, secret) {
		t.Fatalf("create: exit code %d\n%s\n%s", code, out, errors)
	}
	status, bundle := w.fetch(strings.TrimSpace(out))
	if status != 200 || !strings.Contains(bundle, secret) ||
		!strings.Contains(bundle, `"maxPods": 110`) {
		t.Errorf("the URL %s: %d %.300s", out, status, bundle)
	}
	w.deployedTwice(t)
	w.deployedOnce(t, secret)
}

// deployedTwice deploys the same again when the machine has its URL: the deployments succeed,
// what-if shows no change, and the node keeps its configuration.
func (w *azWorld) deployedTwice(t *testing.T) {
	const (
		node    = "az aks flex-node show $G -n arm-1 -o json --query "
		version = node + "'[eTag, properties.configVersion, properties.azureAuth]'"
		with    = " -g my-rg -f flexnode.json -p arm-1.json -p outputConfigUrl=false "
	)
	before := w.must(version)
	equal(t, "what-if announces", w.must("az deployment group what-if"+with+"--no-pretty-print "+
		"--query 'changes[].changeType' -o tsv"), "NoChange")
	for range 2 {
		equal(t, "deployed again", w.must("az deployment group create"+with+"-n same -o tsv --query "+
			"properties.provisioningState"), "Succeeded")
	}
	equal(t, "the version", w.must(version), before)
	equal(t, "the configurations that the node has had",
		w.must("az aks flex-node history $G -n arm-1 --query 'length(@)' -o tsv"), "1")
}

// deployedOnce checks the deployment, and deploys again when the machine has its URL.
func (w *azWorld) deployedOnce(t *testing.T, secret string) {
	for _, step := range []struct{ script, want string }{
		{"az aks flex-node show $G -n arm-1 --query properties.provisioningState -o tsv", "Succeeded"},
		{"az deployment group show -g my-rg -n first --query properties.[provisioningState," +
			"parameters.clientSecret] -o json | tr -d ' \n'",
			`["Succeeded",{"type":"SecureString"}]`},
		{`az deployment operation group list -g my-rg -n first --query "[].[properties.statusCode,
  properties.provisioningOperation, properties.targetResource.resourceName]" -o tsv |
  tr '\t\n' ' '`,
			"Created Create my-cluster/arm-1 OK EvaluateDeploymentOutput None"},
		{`az deployment group what-if -g my-rg -f flexnode.json -p arm-1.json -p maxPods=50 \
  --no-pretty-print --query "changes[].[changeType, delta[0].path]" -o tsv | tr '\t' ' '`,
			"Modify properties.nodeConfig.maxPods"},
		{`az deployment group create -g my-rg -f flexnode.json -p arm-1.json -p maxPods=50 \
  outputConfigUrl=false -n again --query properties.outputs.configUrl.value -o tsv`, ""},
		{"az aks flex-node show $G -n arm-1 --query properties.nodeConfig.maxPods -o tsv", "50"},
	} {
		if got := w.must(step.script); got != step.want || strings.Contains(got, secret) {
			t.Errorf("%s\ngot  %q\nwant %q", step.script, got, step.want)
		}
	}
}

// The errors of a deployment are reported in one error, with its cause.
func (w *azWorld) deploymentsRefused(t *testing.T) {
	w.parameterFile("good.json", map[string]any{"clusterName": "my-cluster", "nodeName": "arm-2",
		"clientId": "11111111-2222-3333-4444-555555555555", "clientSecret": "s",
		"outputConfigUrl": true})
	w.parameterFile("typo.json", map[string]any{"nodName": "x"})
	w.parameterFile("type.json", map[string]any{"maxPods": "many"})
	for i, tt := range []struct{ role, parameters, want string }{
		{"deployer", "clusterName=my-cluster", "Missing input parameters: "},
		{"deployer", "good.json nodName=x", "unrecognized template parameter 'nodName'"},
		{"deployer", "good.json typo.json", "The template parameters 'nodName' in the parameters file " +
			"are not valid"},
		{"deployer", "good.json type.json", "The provided value for the template parameter 'maxPods' " +
			"is not valid. Expected a value of type 'Int', but received a value of type 'String'"},
		{"deployer", `good.json versions='{"kubernetes": "9"}'`,
			"The Kubernetes version '9' is not a version"},
		{"deployer", "good.json clusterName=no-cluster", "Parent resource"},
		{"none", "good.json", "does not have authorization to perform action " +
			"'Microsoft.Resources/deployments/validate/action'"},
		{"no-write", "good.json", "does not have permission to perform action '" + flexNodeConfig +
			"/write'"},
		{"no-list", "good.json", "does not have authorization to perform action '" + flexNodeConfig +
			"/listConfigUrl/action'"},
	} {
		if !inShort(i) {
			continue
		}
		s := w.sub(t)
		s.who = azDeployer.Name
		s.role(tt.role)
		s.fails("az deployment group create -g my-rg -f flexnode.json -n refused -p "+
			tt.parameters, tt.want)
	}
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
