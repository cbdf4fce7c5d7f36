package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// documents are the objects of a manifest.
func documents(t *testing.T, manifest string) (list []map[string]any) {
	t.Helper()
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if object != nil {
			list = append(list, object)
		}
	}
	return list
}

// value returns the value at a path of names and indices in an object.
func value(object any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := object.(map[string]any)
			object = m[p]
		case int:
			list, _ := object.([]any)
			if p >= len(list) {
				return nil
			}
			object = list[p]
		}
	}
	return object
}

// Ours lands on flex nodes and nowhere else, may do what kube-proxy has to and no more, and shows
// nothing to the network.
func TestKubeProxy(t *testing.T) {
	manifest := Text("kube-proxy.yaml")
	by := map[any]any{}
	for _, d := range documents(t, manifest) {
		by[d["kind"]] = d
	}
	if len(by) != 4 {
		t.Fatalf("it has %d kinds of objects, want 4", len(by))
	}
	config, _ := value(by["ConfigMap"], "data", "config").(string)
	settings := documents(t, config)[0]
	pod := value(by["DaemonSet"], "spec", "template", "spec")
	security := value(pod, "containers", 0, "securityContext")
	for _, tt := range []struct {
		name      string
		got, want any
	}{
		{"role", value(by["ClusterRoleBinding"], "roleRef", "name"), "system:node-proxier"},
		{"bound to", value(by["ClusterRoleBinding"], "subjects"), []any{map[string]any{
			"kind": "ServiceAccount", "namespace": "kube-system",
			"name": value(by["ServiceAccount"], "metadata", "name"),
		}}},
		{"runs as", value(pod, "serviceAccountName"), value(by["ServiceAccount"], "metadata", "name")},
		{"nodes", value(pod, "nodeSelector"), map[string]any{
			"kubernetes.io/os": "linux", "kubernetes.azure.com/managed": "false",
		}},
		{"capabilities", value(security, "capabilities"), map[string]any{
			"drop": []any{"ALL"}, "add": []any{"NET_ADMIN"},
		}},
		{"privileged", value(security, "privileged"), nil},
		{"writes", value(security, "readOnlyRootFilesystem"), true},
		{"volumes", len(value(pod, "volumes").([]any)), 1},
		{"metrics", settings["metricsBindAddress"], "127.0.0.1:10249"},
		{"health", settings["healthzBindAddress"], "127.0.0.1:10256"},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	for _, placeholder := range []string{" API-SERVER\n", "kube-proxy:vKUBERNETES-VERSION\n"} {
		if strings.Count(manifest, placeholder) != 1 {
			t.Errorf("%q does not occur once", placeholder)
		}
	}
}
