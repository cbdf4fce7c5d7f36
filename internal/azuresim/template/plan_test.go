package template

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// whole returns a template with the given members.
func whole(members string) []byte {
	return fmt.Appendf(nil, `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/`+
		`deploymentTemplate.json#", "contentVersion": "1.0.0.0", %s}`, members)
}

func bound(members, parameters string) (*Plan, error) {
	t, err := Read(whole(members))
	if err != nil {
		return nil, err
	}
	return t.Bind([]byte(parameters), here)
}

func TestParameters(t *testing.T) {
	const declared = `"parameters": {
		"name": {"type": "string", "allowedValues": ["a", "b"], "defaultValue": "[parameters('other')]"},
		"other": {"type": "String", "defaultValue": "b"},
		"secret": {"type": "securestring", "minLength": 3, "defaultValue": "none"},
		"whole": {"type": "secureObject", "defaultValue": {}},
		"count": {"type": "int", "minValue": 1, "maxValue": 110, "defaultValue": 5},
		"on": {"type": "bool", "defaultValue": true},
		"list": {"type": "array"}}, "resources": []`
	p, err := bound(declared, `{"LIST": {"value": [1]}, "secret": {"value": "canary"}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"name": map[string]any{"type": "String", "value": "b"},
		"other":  map[string]any{"type": "String", "value": "b"},
		"secret": map[string]any{"type": "SecureString"}, "whole": map[string]any{"type": "SecureObject"},
		"count": map[string]any{"type": "Int", "value": int64(5)},
		"on":    map[string]any{"type": "Bool", "value": true},
		"list":  map[string]any{"type": "Array", "value": []any{int64(1)}}}
	if diff := cmp.Diff(want, p.Parameters); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const list = `"list": {"value": []}`
	for _, tt := range []struct{ given, want string }{
		{``,
			"The value for the template parameter 'list' is not provided"},
		{`{"list": {"value": "x"}}`,
			"Expected a value of type 'Array', but received"},
		{`{"list": {"reference": {}}}`,
			"given in another way than by its value"},
		{`{"typo": {"value": 1}, ` + list + `}`,
			"'typo' in the parameters file are not valid"},
		{`{"name": {"value": "c"}, ` + list + `}`,
			"'c' for the template parameter 'name' is not valid. " +
				"The parameter value is not part of the allowed value(s): 'a,b'"},
		{`{"count": {"value": 0}, ` + list + `}`,
			"its minValue is 1"},
		{`{"count": {"value": 111}, ` + list + `}`,
			"its maxValue is 110"},
		{`{"count": {"value": 1.5}, ` + list + `}`,
			"received a value of type 'Float'"},
		{`{"secret": {"value": "ab"}, ` + list + `}`,
			"its minLength is 3"},
		{`{"secret": {"value": 55555}, ` + list + `}`,
			"received a value of type 'Integer'"},
		{`[]`,
			"The parameters are not an object"},
	} {
		_, err := bound(declared, tt.given)
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "55555") {
			t.Errorf("%s: %v; want %s", tt.given, err, tt.want)
		}
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	const resource = `{"type": "A.B/c", "apiVersion": "v", "name": "n"`
	for _, tt := range []struct{ members, want string }{
		{`"resources": [` + resource + `, "copy": {}}]`,
			"'copy' is not simulated, in the template resource 'n'"},
		{`"resources": {"n": ` + resource + `}}`,
			"symbolic names"},
		{`"functions": [{}]`,
			"'functions' of a template is not simulated"},
		{`"resources": [{"type": "A.B/c/d", "apiVersion": "v", "name": "n"}]`,
			"incorrect segment lengths"},
		{`"resources": [{"type": "A.B/c", "apiVersion": "v", "name": "n/m"}]`,
			"incorrect segment lengths"},
		{`"resources": [{"type": "A.B/c", "name": "n"}]`,
			"Expected a value of type 'String', but received a value of type 'Null'"},
		{`"resources": [{"type": "Microsoft.Resources/deployments", "apiVersion": "v", "name": "n"}]`,
			"'Microsoft.Resources/deployments' are not simulated"},
		{`"resources": [` + resource + `, "dependsOn": ["m"]}]`,
			"The resource 'm' is not defined in the template"},
		{`"resources": [` + resource + `, "dependsOn": ["n"]}]`,
			"Circular dependency detected"},
		{`"resources": [` + resource + `, "dependsOn": "n"}]`,
			"'dependsOn' is not a list, in the template resource 'n'"},
		{`"resources": [` + resource + `, "resources": {"m": {}}}]`,
			"'resources' is not a list, in the template resource 'n'"},
		{`"resources": [` + resource + `}, {"type": "a.b/C", "apiVersion": "v", "name": "N"}]`,
			"is defined multiple times in a template"},
		{`"resources": [` + resource + `, "tags": "[none()]", "condition": false},` +
			`{"type": "A.B/d", "apiVersion": "v", "name": "n"}]`,
			"The template resource 'n' is not valid: The template function 'none'"},
		{`"resources": [` + resource + `, "tags": "[true()\u0000none()]"}]`,
			"Unable to parse language expression"},
		{`"resources": [` + resource + `, "condition": "yes"}]`,
			"Its condition is of type 'String'"},
		{`"resources": [` + resource + `, "tags": "[none()]"}]`,
			"The template resource 'n' is not valid: The template function 'none'"},
		{`"resources": [` + resource + `, "tags": "[parameters('p')]"}]`,
			"The template parameter 'p' is not found"},
		{`"resources": [{"type": "A.B/c", "apiVersion": "v", "name": "[reference('x').y]"}]`,
			"'reference' is not expected at this location"},
		{`"outputs": {"o": {"type": "text"}}`,
			"The template output 'o' is not valid: its type is 'text'"},
		{`"outputs": {"o": {"type": "int", "value": "[variables('v')]"}}`,
			"The template variable 'v' is not found"},
		{`"parameters": {"p": {"type": "int", "nullable": true}}`,
			"The template parameter 'p' is not valid: 'nullable' is not simulated"},
		{`"parameters": {"p": {}}`,
			"it has no type"},
	} {
		if _, err := bound(tt.members, ""); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %s", tt.members, err, tt.want)
		}
	}
	for text, want := range map[string]string{`{`: "not JSON", `[]`: "not an object",
		`{"contentVersion": "1", "$schema": "subscriptionDeploymentTemplate.json#"}`: "resource group",
		`{"$schema": "http://x/deploymentTemplate.json#"}`:                           "contentVersion",
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

func TestResourcesOfAPlan(t *testing.T) {
	p, err := bound(`"parameters": {"off": {"type": "bool", "defaultValue": false},
		"secret": {"type": "securestring", "defaultValue": "canary"}},
		"resources": [
			{"type": "A.B/c", "apiVersion": "v", "name": "n", "location": "lab", "resources": [
				{"type": "d", "apiVersion": "w", "name": "[toLower('M')]", "dependsOn": ["n", "gone"],
				 "properties": {"secret": "[concat('s', parameters('secret'))]",
				                "url": "[reference('n').url]"}}]},
			{"type": "A.B/c", "apiVersion": "v", "name": "gone", "condition": "[parameters('off')]"}]`, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Resources) != 2 {
		t.Fatalf("%d resources", len(p.Resources))
	}
	parent, child := p.Resources[0], p.Resources[1]
	if parent.ID != group+"/providers/A.B/c/n" || child.ID != parent.ID+"/d/m" ||
		child.Version != "w" || !cmp.Equal(child.Depends, []string{parent.ID}) {
		t.Errorf("%+v\n%+v", parent, child)
	}
	for _, name := range []string{child.ID, "n/m", "A.B/c/d/n/m"} {
		if r, ok := p.Named(name); !ok || r.ID != child.ID {
			t.Errorf("%s is not found", name)
		}
	}
	body, err := p.Body(child, asked{})
	if err == nil || body != nil {
		t.Errorf("a property that is not there: %v, %v", body, err)
	}
	preview, err := p.Preview(child)
	want := map[string]any{"properties": map[string]any{"secret": "s" + Masked,
		"url": "[reference('n').url]"}}
	if diff := cmp.Diff(want, preview); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

func TestOutputs(t *testing.T) {
	const outputs = `"parameters": {"s": {"type": "string", "defaultValue": "x"}}, "outputs": {
		"url": {"type": "string", "value": "[listConfigUrl('/x', 'v').asked]"},
		"secret": {"type": "securestring", "value": "canary"},
		"off": {"type": "string", "value": "a", "condition": false},
		"n": {"type": "int", "value": "[%s]"}}`
	p, err := bound(fmt.Sprintf(outputs, "length(parameters('s'))"), "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Outputs(asked{})
	want := map[string]any{"secret": map[string]any{"type": "SecureString"},
		"url": map[string]any{"type": "String", "value": "listConfigUrl /x v null"},
		"n":   map[string]any{"type": "Int", "value": int64(1)}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if p, err = bound(fmt.Sprintf(outputs, "parameters('s')"), ""); err != nil {
		t.Fatal(err)
	}
	var failed OutputError
	if _, err := p.Outputs(asked{}); !errors.As(err, &failed) || failed.Name != "n" {
		t.Errorf("an output of another type: %v", err)
	}
	if err := p.Check(); err == nil || !strings.Contains(err.Error(),
		"The template output 'n' is not valid: Template output JToken type is not valid") {
		t.Errorf("before the deployment: %v", err)
	}
}

// The example is accepted unchanged, and its secret appears only in the body of the PUT.
func TestTheExample(t *testing.T) {
	text, err := os.ReadFile("../../../examples/arm/flexnode.json")
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := read.Bind([]byte(`{"clusterName": {"value": "prod"}, "nodeName": {"value": "n"},
		"clientId": {"value": "id"}, "clientSecret": {"value": "canary"},
		"outputConfigUrl": {"value": true}}`), here)
	if err != nil {
		t.Fatal(err)
	}
	const id = group + "/providers/Microsoft.ContainerService/managedClusters/prod/flexNodeConfig/n"
	body, err := p.Body(p.Resources[0], asked{})
	if err != nil || p.Resources[0].ID != id || !strings.Contains(fmt.Sprint(body), "canary") {
		t.Errorf("%+v, %v, %v", p.Resources, body, err)
	}
	preview, err := p.Preview(p.Resources[0])
	if err != nil || strings.Contains(fmt.Sprint(preview, p.Parameters), "canary") {
		t.Errorf("%v %v, %v", preview, p.Parameters, err)
	}
	outputs, err := p.Outputs(asked{})
	if err == nil {
		t.Errorf("the URL of an answer without one is %v", outputs)
	}
}
