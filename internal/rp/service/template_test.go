package service

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

type template struct {
	Parameters map[string]struct {
		Type         string
		DefaultValue any
	}
	Resources []struct {
		Type, APIVersion, Name string
		Properties             map[string]any
	}
	Outputs map[string]struct{ Value string }
}

var parameter = regexp.MustCompile(`^\[parameters\('(\w+)'\)\]$`)

// expand puts parameters into what a template has.
func expand(t *testing.T, value any, given map[string]any) any {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		expanded := map[string]any{}
		for key, member := range v {
			expanded[key] = expand(t, member, given)
		}
		return expanded
	case string:
		if found := parameter.FindStringSubmatch(v); found != nil {
			if _, ok := given[found[1]]; !ok {
				t.Errorf("there is no parameter %s", found[1])
			}
			return given[found[1]]
		}
		if strings.HasPrefix(v, "[") {
			t.Errorf("%s is no parameter", v)
		}
	}
	return value
}

// The provider takes what the ARM template of the examples PUTs, and gives the URL of its output.
func TestTemplateOfTheExamples(t *testing.T) {
	var read template
	text := must(os.ReadFile("../../../examples/arm/flexnode.json"))
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	given := map[string]any{"clusterName": "Factory", "nodeName": "edge-1",
		"clientId": "11111111-2222-3333-4444-555555555555", "clientSecret": "secret",
		"labels": map[string]any{"site": "oslo"}}
	values := maps.Clone(given)
	for name, p := range read.Parameters {
		if _, ok := given[name]; !ok {
			values[name] = p.DefaultValue
		}
	}
	resource := read.Resources[0]
	if resource.Type != "Microsoft.ContainerService/managedClusters/flexNodeConfig" ||
		resource.APIVersion != api.APIVersion || read.Parameters["clientSecret"].Type != "securestring" {
		t.Errorf("the resource is %s, version %s", resource.Type, resource.APIVersion)
	}
	body := must(json.Marshal(map[string]any{
		"properties": expand(t, resource.Properties, values)}))
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, shown := w.must(201, "PUT", nodeURL("edge-1"), string(body))
		if n := shownNode(t, shown); n.Properties.NodeConfig.Labels["site"] != "oslo" ||
			!n.Properties.ContinuousMonitoring {
			t.Errorf("the node is %s", shown)
		}
		output := read.Outputs["configUrl"].Value
		action, _, _ := strings.Cut(strings.TrimPrefix(output, "["), "(")
		_, answer := w.must(200, "POST", nodeURL("edge-1", "/", action), "{}")
		if !strings.Contains(answer, "configUrl") || !strings.Contains(output, ".configUrl]") {
			t.Errorf("%s answers %s", action, answer)
		}
	})
}
