package service

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim/template"
)

// deployed asks the provider what a template asks of a resource.
type deployed struct{ *world }

func (d deployed) Reference(id, version string, _ bool) (any, error) {
	_, answer := d.must(200, "GET", id+"?api-version="+version, "")
	return template.Decode([]byte(answer))
}

func (d deployed) List(action, id, version string, _ any) (any, error) {
	_, answer := d.must(200, "POST", id+"/"+action+"?api-version="+version, "{}")
	return template.Decode([]byte(answer))
}

// The provider takes what the ARM template of the examples PUTs, and gives the URL of its output.
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
		if !strings.Contains(outputs, `"value":"`+publicURL) {
			t.Errorf("the outputs are %s", outputs)
		}
	})
}
