package azuresim_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// nodes is a resource provider of flexNodeConfigs. A PUT ends after one poll, of its operation or
// of the resource. Names that begin with "bad" are refused; those with "slow" never end.
type nodes struct {
	mu    sync.Mutex
	kept  map[string]map[string]any
	order []string // of PUTs, by name
}

func (n *nodes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "0")
	switch {
	case r.Method == http.MethodPut && strings.HasPrefix(name, "bad"):
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"error": {"code": "NameTaken", "message": "The name %s is taken."}}`, name)
	case r.Method == http.MethodPut:
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		n.order = append(n.order, name)
		n.kept[name] = body
		properties, _ := body["properties"].(map[string]any)
		if properties == nil {
			properties = map[string]any{}
			body["properties"] = properties
		}
		properties["provisioningState"] = "Creating"
		if strings.HasPrefix(name, "asked") {
			w.Header().Set("Azure-AsyncOperation", "https://"+r.Host+"/subscriptions/"+subscription+
				"/providers/Microsoft.ContainerService/locations/lab/operationStatuses/1?api-version=v")
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(body)
	case strings.Contains(r.URL.Path, "operationStatuses"):
		_, _ = io.WriteString(w, `{"status": "Succeeded"}`)
	case r.Method == http.MethodPost:
		_, _ = io.WriteString(w, `{"configUrl": "https://here/once"}`)
	case n.kept[name] == nil:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error": {"code": "ResourceNotFound", "message": "no"}}`)
	default:
		properties := n.kept[name]["properties"].(map[string]any)
		if !strings.HasPrefix(name, "slow") {
			properties["provisioningState"] = "Succeeded"
		}
		if auth, ok := properties["azureAuth"].(map[string]any); ok { // responses have no secret
			delete(auth["servicePrincipal"].(map[string]any), "clientSecret")
		}
		_ = json.NewEncoder(w).Encode(n.kept[name])
	}
}

// deployer has Azure's own clients for a simulation with a provider.
type deployer struct {
	*azure
	t      *testing.T
	nodes  *nodes
	log    bytes.Buffer
	client *armresources.DeploymentsClient
	seen   *armresources.DeploymentOperationsClient
}

func newDeployer(t *testing.T) *deployer {
	d := &deployer{azure: start(t), t: t, nodes: &nodes{kept: map[string]map[string]any{}}}
	t.Cleanup(d.Close)
	d.Log = slog.New(slog.NewTextHandler(&d.log, nil))
	server := httptest.NewServer(d.nodes)
	t.Cleanup(server.Close)
	d.Provider = &azuresim.Provider{URLs: []string{server.URL}, Client: server.Client()}
	credential, options := d.arm(t)
	var err error
	if d.client, err = armresources.NewDeploymentsClient(subscription, credential,
		options); err != nil {
		t.Fatal(err)
	}
	if d.seen, err = armresources.NewDeploymentOperationsClient(subscription, credential,
		options); err != nil {
		t.Fatal(err)
	}
	return d
}

func templateOf(t *testing.T, resources, outputs string) any {
	t.Helper()
	text := `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/` +
		`deploymentTemplate.json#", "contentVersion": "1.0.0.0", "resources": [` + resources +
		`], "outputs": {` + outputs + `}}`
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// node returns a template resource.
func node(name, more string) string {
	return `{"type": "Microsoft.ContainerService/managedClusters/flexNodeConfig", ` +
		`"apiVersion": "2026-05-01-preview", "name": "prod/` + name + `"` + more + `}`
}

func properties(template, parameters any) armresources.Deployment {
	return armresources.Deployment{Properties: &armresources.DeploymentProperties{
		Mode: to.Ptr(armresources.DeploymentModeIncremental), Template: template,
		Parameters: parameters}}
}

// example returns the template in examples/ and its parameters.
func example(t *testing.T, name string) (any, any) {
	t.Helper()
	text, err := os.ReadFile("../../examples/arm/flexnode.json")
	if err != nil {
		t.Fatal(err)
	}
	var template any
	if err := json.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	value := func(v string) any { return map[string]any{"value": v} }
	return template, map[string]any{"clusterName": value("prod"), "nodeName": value(name),
		"clientId": value("app"), "clientSecret": value("canary-of-template"),
		"outputConfigUrl": map[string]any{"value": true}}
}

var quickly = &runtime.PollUntilDoneOptions{Frequency: 10 * time.Millisecond}

// create deploys a template and returns the final result.
func (d *deployer) create(name string, of armresources.Deployment) (armresources.DeploymentExtended,
	error) {
	d.t.Helper()
	poller, err := d.client.BeginCreateOrUpdate(d.t.Context(), group, name, of, nil)
	if err != nil {
		return armresources.DeploymentExtended{}, err
	}
	answer, err := poller.PollUntilDone(d.t.Context(), quickly)
	return answer.DeploymentExtended, err
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Azure's own client can deploy the example and read the deployment in every way.
func TestDeploymentOfTheExample(t *testing.T) {
	d := newDeployer(t)
	template, parameters := example(t, "asked-1")
	told := func(what string, v any) {
		t.Helper()
		if strings.Contains(encoded(t, v), "canary-of-template") {
			t.Errorf("%s tells the secret", what)
		}
	}
	validating, err := d.client.BeginValidate(t.Context(), group, "first",
		properties(template, parameters), nil)
	if err != nil {
		t.Fatal(err)
	}
	valid, err := validating.PollUntilDone(t.Context(), quickly)
	if err != nil || *valid.Properties.ProvisioningState != "Succeeded" ||
		len(valid.Properties.ValidatedResources) != 1 || len(d.nodes.order) != 0 {
		t.Errorf("%v %s", err, encoded(t, valid))
	}
	told("validate", valid)
	if changes := d.whatIf("first", template, parameters); len(changes) != 1 ||
		*changes[0].ChangeType != armresources.ChangeTypeCreate {
		t.Errorf("before: %s", encoded(t, changes))
	}
	made, err := d.create("first", properties(template, parameters))
	if err != nil {
		t.Fatal(err)
	}
	told("create", made)
	p := made.Properties
	want := map[string]any{"configUrl": map[string]any{"type": "String", "value": "https://here/once"}}
	if diff := cmp.Diff(want, p.Outputs); diff != "" || *p.ProvisioningState != "Succeeded" ||
		len(p.OutputResources) != 1 ||
		*p.OutputResources[0].ID != clusterID+"/flexNodeConfig/asked-1" {
		t.Errorf("%s\n%s", diff, encoded(t, made))
	}
	if got := encoded(t, d.nodes.kept); strings.Contains(got, "maxPods") &&
		!strings.Contains(got, `"maxPods":110`) {
		t.Errorf("the provider has %s", got)
	}
	got, err := d.client.Get(t.Context(), group, "FIRST", nil)
	if err != nil || *got.ID != groupID+"/providers/Microsoft.Resources/deployments/first" ||
		encoded(t, got.Properties.Parameters.(map[string]any)["clientSecret"]) !=
			`{"type":"SecureString"}` {
		t.Errorf("%v %s", err, encoded(t, got))
	}
	told("get", got)
	d.operations("first", "Create Succeeded Created prod/asked-1",
		"EvaluateDeploymentOutput Succeeded OK ")
	if changes := d.whatIf("first", template, parameters); len(changes) != 1 ||
		*changes[0].ChangeType != armresources.ChangeTypeNoChange {
		t.Errorf("the same: %s", encoded(t, changes))
	}
	parameters.(map[string]any)["maxPods"] = map[string]any{"value": 50}
	changes := d.whatIf("first", template, parameters)
	if len(changes) != 1 || len(changes[0].Delta) != 1 ||
		encoded(t, changes[0].Delta[0]) != `{"after":50,"before":110,"path":"properties.nodeConfig.`+
			`maxPods","propertyChangeType":"Modify"}` {
		t.Errorf("another: %s", encoded(t, changes))
	}
	told("what-if", changes)
	d.removed("first")
	if strings.Contains(d.log.String(), "canary-of-template") {
		t.Error("the log tells the secret")
	}
}

// Results are kept for callers, but only a limited number.
func TestResultsAreForgotten(t *testing.T) {
	d := newDeployer(t)
	begin := func() *runtime.Poller[armresources.DeploymentsClientWhatIfResponse] {
		t.Helper()
		poller, err := d.client.BeginWhatIf(t.Context(), group, "asked", armresources.DeploymentWhatIf{
			Properties: &armresources.DeploymentWhatIfProperties{
				Mode:     to.Ptr(armresources.DeploymentModeIncremental),
				Template: templateOf(t, machine("m"), "")}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return poller
	}
	first := begin()
	for range 150 {
		begin()
	}
	last := begin()
	if answer, err := last.PollUntilDone(t.Context(), quickly); err != nil ||
		len(answer.Properties.Changes) != 1 {
		t.Errorf("the last one: %v %s", err, encoded(t, answer))
	}
	if _, err := first.PollUntilDone(t.Context(), quickly); code(err) != "ResourceNotFound" {
		t.Errorf("the first one is still kept: %v", err)
	}
}

func (d *deployer) whatIf(name string, template, parameters any) []*armresources.WhatIfChange {
	d.t.Helper()
	poller, err := d.client.BeginWhatIf(d.t.Context(), group, name, armresources.DeploymentWhatIf{
		Properties: &armresources.DeploymentWhatIfProperties{
			Mode: to.Ptr(armresources.DeploymentModeIncremental), Template: template,
			Parameters: parameters}}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	answer, err := poller.PollUntilDone(d.t.Context(), quickly)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer.Properties.Changes
}

// operations checks a deployment's operations: kind, state, status, name.
func (d *deployer) operations(name string, want ...string) {
	d.t.Helper()
	var got []string
	for pager := d.seen.NewListPager(group, name, nil); pager.More(); {
		page, err := pager.NextPage(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		for _, op := range page.Value {
			target := ""
			if r := op.Properties.TargetResource; r != nil {
				target = *r.ResourceName
			}
			got = append(got, fmt.Sprintf("%s %s %s %s", *op.Properties.ProvisioningOperation,
				*op.Properties.ProvisioningState, *op.Properties.StatusCode, target))
			one, err := d.seen.Get(d.t.Context(), group, name, *op.OperationID, nil)
			if err != nil || *one.ID != *op.ID {
				d.t.Errorf("%s: %v", *op.ID, err)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// removed exports, lists and deletes a deployment; its resources remain.
func (d *deployer) removed(name string) {
	t := d.t
	t.Helper()
	exported, err := d.client.ExportTemplate(t.Context(), group, name, nil)
	if err != nil || !strings.Contains(encoded(t, exported), "listConfigUrl(resourceId(") {
		t.Errorf("export: %v %s", err, encoded(t, exported))
	}
	page, err := d.client.NewListByResourceGroupPager(group, nil).NextPage(t.Context())
	if err != nil || len(page.Value) != 1 {
		t.Errorf("list: %v %s", err, encoded(t, page))
	}
	if there, err := d.client.CheckExistence(t.Context(), group, name, nil); err != nil ||
		!there.Success {
		t.Errorf("exists: %v %v", there, err)
	}
	poller, err := d.client.BeginDelete(t.Context(), group, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := poller.PollUntilDone(t.Context(), quickly); err != nil {
		t.Error(err)
	}
	if there, err := d.client.CheckExistence(t.Context(), group, name, nil); err != nil ||
		there.Success {
		t.Errorf("still exists: %v %v", there, err)
	}
	if _, err := d.client.Get(t.Context(), group, name, nil); code(err) != "DeploymentNotFound" {
		t.Errorf("get: %v", err)
	}
	if len(d.nodes.kept) == 0 {
		t.Error("the resources are gone")
	}
}

func code(err error) string {
	var e *azcore.ResponseError
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return e.ErrorCode
}

// Resources are deployed after their dependencies, by dependsOn and by reference. If a resource
// fails, those that depend on it are skipped and all others deployed. Each failure is reported
// once.
func TestDeploymentOrderAndFailure(t *testing.T) {
	d := newDeployer(t)
	_, err := d.create("order", properties(templateOf(t,
		node("c", `, "properties": {"of": "[reference('prod/a').provisioningState]"}`)+","+
			node("b", `, "dependsOn": ["prod/c"]`)+","+node("a", ""), ""), nil))
	if diff := cmp.Diff([]string{"a", "c", "b"}, d.nodes.order); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if got := encoded(t, d.nodes.kept["c"]); !strings.Contains(got, `"of":"Succeeded"`) {
		t.Errorf("c is %s", got)
	}
	d.nodes.order = nil
	_, err = d.create("failure", properties(templateOf(t, node("bad-1", "")+","+
		node("e", `, "dependsOn": ["prod/bad-1"]`)+","+node("f", ""), ""), nil))
	if !cmp.Equal(d.nodes.order, []string{"f"}) || err == nil ||
		!strings.Contains(err.Error(), "DeploymentFailed") ||
		strings.Count(err.Error(), "The name bad-1 is taken.") != 1 {
		t.Errorf("%v: %v", d.nodes.order, err)
	}
	got, err := d.client.Get(t.Context(), group, "failure", nil)
	if err != nil || *got.Properties.ProvisioningState != "Failed" ||
		*got.Properties.Error.Details[0].Code != "NameTaken" {
		t.Errorf("%v %s", err, encoded(t, got))
	}
	d.operations("failure", "Create Failed Conflict prod/bad-1", "Create Succeeded Created prod/f")
}

// A deployment has its caller's permissions: resources that the caller may not write are refused
// before anything is deployed, and an output that the caller may not list fails.
func TestDeploymentIsTheCallers(t *testing.T) {
	d := newDeployer(t)
	const write = "Microsoft.ContainerService/managedClusters/flexNodeConfig/write"
	role := func(actions ...string) {
		d.Revoke(operator.ObjectID)
		w := azuresim.World{Subscriptions: []azuresim.Subscription{{ID: subscription}},
			ResourceGroups: []string{groupID}, Applications: []azuresim.Application{operator},
			Roles: []azuresim.Role{{ID: "r", Actions: append(actions,
				"Microsoft.Resources/deployments/*")}},
			Assignments: []azuresim.Assignment{{Scope: groupID, RoleID: "r",
				PrincipalID: operator.ObjectID}}}
		d.Load(w)
	}
	template, parameters := example(t, "n")
	role()
	_, err := d.create("first", properties(template, parameters))
	if code(err) != "InvalidTemplateDeployment" || !strings.Contains(err.Error(),
		"Authorization failed for template resource 'prod/n'") || !strings.Contains(err.Error(), write) {
		t.Errorf("may not write: %v", err)
	}
	role(write, strings.Replace(write, "write", "read", 1))
	_, err = d.create("first", properties(template, parameters))
	if err == nil || !strings.Contains(err.Error(), "DeploymentOutputEvaluationFailed") ||
		!strings.Contains(err.Error(), "listConfigUrl/action") {
		t.Errorf("may not list: %v", err)
	}
	d.operations("first", "Create Succeeded Created prod/n",
		"EvaluateDeploymentOutput Failed Forbidden ")
}

func TestDeploymentThatIsRunning(t *testing.T) {
	d := newDeployer(t)
	of := properties(templateOf(t, node("slow", ""), ""), nil)
	if _, err := d.client.BeginCreateOrUpdate(t.Context(), group, "long", of, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.BeginCreateOrUpdate(t.Context(), group, "long", of,
		nil); code(err) != "DeploymentActive" {
		t.Errorf("again: %v", err)
	}
	if _, err := d.client.BeginDelete(t.Context(), group, "long",
		nil); code(err) != "DeploymentActive" {
		t.Errorf("delete: %v", err)
	}
	if _, err := d.client.Cancel(t.Context(), group, "long", nil); err != nil {
		t.Fatal(err)
	}
	got, err := d.client.Get(t.Context(), group, "long", nil)
	if err != nil || *got.Properties.ProvisioningState != "Canceled" {
		t.Errorf("%v %s", err, encoded(t, got))
	}
	if _, err := d.client.Cancel(t.Context(), group, "long",
		nil); code(err) != "DeploymentCannotBeCancelled" {
		t.Errorf("cancel again: %v", err)
	}
	d.Close() // waits for the canceled deployment
	if got, err = d.client.Get(t.Context(), group, "long", nil); err != nil ||
		*got.Properties.ProvisioningState != "Canceled" {
		t.Errorf("%v %s", err, encoded(t, got))
	}
}

func TestDeploymentsThatAreRefused(t *testing.T) {
	d := newDeployer(t)
	for _, tt := range []struct {
		of   armresources.Deployment
		want string
	}{
		{properties(templateOf(t, "", `"u": {"type": "string", "value": "[uniqueString('a')]"}`), nil),
			"The template function 'uniqueString' is not valid"},
		{properties(templateOf(t, "", ""), map[string]any{"typo": map[string]any{"value": 1}}),
			"'typo' in the parameters file are not valid"},
		{armresources.Deployment{Properties: &armresources.DeploymentProperties{
			Mode: to.Ptr(armresources.DeploymentModeComplete), Template: templateOf(t, "", "")}},
			"The mode 'Complete' is not simulated"},
		{armresources.Deployment{Properties: &armresources.DeploymentProperties{
			Mode:         to.Ptr(armresources.DeploymentModeIncremental),
			TemplateLink: &armresources.TemplateLink{URI: to.Ptr("https://x")}}},
			"'templateLink' is not simulated"},
	} {
		_, err := d.create("refused", tt.of)
		if code(err) != "InvalidTemplate" || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v; want %s", err, tt.want)
		}
	}
}
