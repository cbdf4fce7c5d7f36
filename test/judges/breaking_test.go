// Package judges has programs of others that judge this project, in a module of its own: what they
// need is no part of the product's requirements.
package judges

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
)

// No client of version 0.1.0 breaks: oasdiff finds no breaking change of the API's document since,
// and finds each that is made on purpose.
func TestNothingBreaks(t *testing.T) {
	released, err := os.ReadFile("../../docs/api/openapi-0.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile("../../docs/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if found := breaking(t, released, now); found != "" {
		t.Errorf("breaking changes since version 0.1.0:\n%s", found)
	}
	const node = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/" +
		"Microsoft.ContainerService/managedClusters/{resourceName}/flexNodeConfig/{nodeName}"
	for name, tt := range map[string]struct {
		change func(document map[string]any)
		id     string
	}{
		"a path that is gone": {func(d map[string]any) { delete(at(d, "paths"), node) },
			"api-path-removed-without-deprecation"},
		"a property that is gone": {func(d map[string]any) {
			delete(at(d, "definitions", "KubeletConfig", "properties"), "kubeReserved")
		}, "request-property-removed"},
		"a property of another type": {func(d map[string]any) {
			at(d, "definitions", "NodeConfig", "properties", "maxPods")["type"] = "string"
		}, "property-type-changed"},
		"a property that must be sent": {func(d map[string]any) {
			at(d, "definitions", "NodeConfig")["required"] = []any{"maxPods"}
		}, "request-property-became-required"},
	} {
		var document map[string]any
		if err := json.Unmarshal(released, &document); err != nil {
			t.Fatal(err)
		}
		tt.change(document)
		changed, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		if found := breaking(t, released, changed); !strings.Contains(found, tt.id) {
			t.Errorf("%s: oasdiff finds no %s: %q", name, tt.id, found)
		}
	}
}

// at returns the object at a path of a document.
func at(document map[string]any, path ...string) map[string]any {
	for _, name := range path {
		document = document[name].(map[string]any)
	}
	return document
}

// breaking returns what oasdiff says of the breaking changes from a document to another; "" for
// none. It reads OpenAPI 3, of which Resource Manager's form, Swagger 2.0, is another spelling.
func breaking(t *testing.T, base, revision []byte) string {
	t.Helper()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "base.json"), filepath.Join(dir, "revision.json")}
	for i, text := range [][]byte{base, revision} {
		var two openapi2.T
		if err := json.Unmarshal(text, &two); err != nil {
			t.Fatal(err)
		}
		three, err := openapi2conv.ToV3(&two)
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(three)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[i], out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "tool", "oasdiff", "breaking", "--fail-on=WARN", "--flatten-allof",
		"--format=singleline", files[0], files[1]).CombinedOutput()
	if err == nil {
		return ""
	}
	if len(out) == 0 {
		t.Fatalf("cannot run oasdiff: %v", err)
	}
	return string(out)
}
