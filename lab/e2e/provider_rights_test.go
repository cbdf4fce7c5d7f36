package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/Azure/AKSFlexNode/manifests"
)

// The provider has every right that it has used so far, and no right that it does not use:
// rbac-provider.yaml has neither too few nor too many.
func rights(t *testing.T) {
	var used, denied map[string]bool
	eventually(t, "the deletion of a Secret in the audit log", func() bool {
		used, denied = asked(t)
		return used["delete secrets"]
	})
	if len(denied) > 0 {
		t.Errorf("the provider was denied %v", slices.Sorted(maps.Keys(denied)))
	}
	// Used with an API server without watch lists, and by a restored provider.
	for _, what := range []string{"list nodes", "list certificatesigningrequests",
		"get configmaps/extension-apiserver-authentication"} {
		used[what] = true
	}
	got, want := slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(granted(t)))
	if !slices.Equal(got, want) {
		t.Errorf("the provider has asked for\n%v\nand may\n%v", got, want)
	}
}

// confined tries to misuse the provider's rights: it cannot become an administrator, and can change
// only the taints of Nodes.
func confined(t *testing.T) {
	secret := func(name, kind, group string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "type": %q, "metadata": {
			"name": %q, "namespace": "kube-system",
			"annotations": {"kubernetes.io/service-account.name": "node-controller"}},
			"stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
			"usage-bootstrap-authentication": "true", "auth-extra-groups": %q}}`,
			kind, name, group)
	}
	for _, name := range []string{"aks-pool1-0", "edge-confined"} {
		node := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q}}`, name)
		if _, err := bench.Kubectl(t.Context(), node, "create", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = bench.Kubectl(context.Background(), "", "delete", "node", name)
		})
	}
	shutsOut(t, "edge-confined", "aks-pool1-0")
	const bootstrap = "bootstrap.kubernetes.io/token"
	const group = "system:bootstrappers:flexnode"
	const ours = group + "," + group + ":0123456789abcdef"
	const secrets = "may only create and delete Secrets"
	const nodes = "may only delete Nodes and change their taints"
	const taint = `{"spec": {"taints": [{"key": "example.com/a", "effect": "NoSchedule"}]}}`
	for _, try := range []struct {
		name, stdin string
		args        []string
		refusal     string // "" if allowed
	}{
		{"a token of a service account", secret("elevated",
			"kubernetes.io/service-account-token", ours), []string{"create", "-f", "-"}, secrets},
		{"a bootstrap token of another group", secret("bootstrap-token-abcdef", bootstrap,
			"system:bootstrappers:admins"), []string{"create", "-f", "-"}, secrets},
		{"a bootstrap token of a third group", secret("bootstrap-token-abcdef", bootstrap,
			ours+",system:bootstrappers:admins"), []string{"create", "-f", "-"}, secrets},
		{"a bootstrap token of its group", secret("bootstrap-token-abcdef", bootstrap, ours),
			[]string{"create", "-f", "-"}, ""},
		{"reading a Secret", "", []string{"get", "secret", "--namespace=kube-system",
			"bootstrap-token-abcdef"}, "cannot get resource"},
		{"listing Secrets", "", []string{"get", "secrets", "--namespace=kube-system"},
			"cannot list resource"},
		{"deleting it", "", []string{"delete", "secret", "--namespace=kube-system",
			"bootstrap-token-abcdef"}, ""},
		{"taints", "", []string{"patch", "node", "edge-confined", "--patch", taint}, ""},
		{"labels", "", []string{"label", "node", "edge-confined", "a=b"}, nodes},
		{"a cordon", "", []string{"patch", "node", "edge-confined", "--patch",
			`{"spec": {"unschedulable": true}}`}, nodes},
		{"taints of a Node of AKS", "", []string{"patch", "node", "aks-pool1-0", "--patch", taint},
			"names do not begin with aks"},
		{"deleting a Node", "", []string{"delete", "node", "edge-confined"}, ""},
		{"deleting a Node of AKS", "", []string{"delete", "node", "aks-pool1-0"},
			"names do not begin with aks"},
		{"another ConfigMap", "", []string{"patch", "configmap", "--namespace=kube-system",
			"kube-root-ca.crt", "--patch", "{}"}, `configmaps "kube-root-ca.crt" is forbidden`},
	} {
		args := append([]string{"--as=flexnode-rp"}, try.args...)
		_, err := bench.Kubectl(t.Context(), try.stdin, args...)
		switch {
		case try.refusal == "" && err != nil:
			t.Errorf("%s: %v", try.name, err)
		case try.refusal != "" && (err == nil || !strings.Contains(err.Error(), try.refusal)):
			t.Errorf("%s: %v, want a refusal with %q", try.name, err, try.refusal)
		}
	}
}

// shutsOut has the provider shut out a flex node, and tries the same with a node of AKS.
func shutsOut(t *testing.T, flex, aks string) {
	t.Helper()
	list := func(ctx context.Context, entry string) {
		data := fmt.Sprintf(`{"data": {%[1]q: %[3]s, %[2]q: %[3]s}}`, flex, aks, entry)
		if _, err := bench.Kubectl(ctx, "", "patch", "configmap", "--namespace=kube-system",
			"flexnode-revoked", "--type=merge", "--patch", data, "--as=flexnode-rp"); err != nil {
			t.Error(err)
		}
	}
	list(t.Context(), `"X509SHA256=0"`)
	t.Cleanup(func() { list(context.Background(), "null") })
	writes := func(name string) error {
		_, err := bench.Kubectl(t.Context(), "", "annotate", "node", name, "a=b", "--dry-run=server",
			"--as=system:node:"+name, "--as-group=system:nodes", "--as-group=system:authenticated")
		return err
	}
	eventually(t, "the refusal of a flex node's writes", func() bool {
		err := writes(flex)
		return err != nil && strings.Contains(err.Error(), "was revoked")
	})
	if err := writes(aks); err != nil {
		t.Errorf("the provider shuts out a node of AKS: %v", err)
	}
}

// asked returns the provider's allowed and denied requests in the API server's audit log, such as
// "get services/kubernetes". An API server that has just started does not have every role yet, so a
// request that is allowed after it was denied does not count as denied. A missing right is never
// allowed, and a removed one is not allowed again.
func asked(t *testing.T) (used, denied map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(bench.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	used, denied = map[string]bool{}, map[string]bool{}
	named := []string{"services", "configmaps", "validatingadmissionpolicybindings"}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb, Stage string
			RequestURI  string
			ObjectRef   struct{ Resource, Subresource, Name string }
			Response    struct{ Code int } `json:"responseStatus"`
		}
		if json.Unmarshal([]byte(line), &e) != nil || e.ObjectRef.Resource == "" ||
			strings.Contains(e.RequestURI, "dryRun=") {
			continue // an incomplete line, a request without a resource, or one without effect
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		switch {
		case e.ObjectRef.Subresource != "":
			what += "/" + e.ObjectRef.Subresource
		case slices.Contains(named, e.ObjectRef.Resource):
			what += "/" + e.ObjectRef.Name
		}
		used[what] = true
		switch {
		case e.Response.Code == http.StatusForbidden:
			denied[what] = true
		case e.Verb == "watch" && e.Stage != "ResponseStarted": // its end is not a decision
		default:
			delete(denied, what)
			if e.Verb == "watch" { // a client that may watch does not list again
				delete(denied, "list "+e.ObjectRef.Resource)
			}
		}
	}
	return used, denied
}

// granted returns the requests that rbac-provider.yaml allows.
func granted(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for d := yaml.NewYAMLToJSONDecoder(strings.NewReader(manifests.Text("rbac-provider.yaml"))); ; {
		var role rbac.ClusterRole // or a Role, which has the same fields
		if err := d.Decode(&role); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					what := strings.TrimSuffix(resource+"/"+strings.Join(rule.ResourceNames, "/"), "/")
					if resource != "signers" { // not a request of its own
						all[verb+" "+what] = true
					}
				}
			}
		}
	}
}
