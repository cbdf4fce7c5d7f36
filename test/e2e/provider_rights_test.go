package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// What the provider has asked of the API server until now it may, and it may nothing that it does
// not ask for: rbac-provider.yaml has neither too little nor too much.
func rights(t *testing.T) {
	var used, denied map[string]bool
	eventually(t, "the deletion of a Secret in the audit log", func() bool {
		used, denied = asked(t)
		return used["delete secrets"]
	})
	if len(denied) > 0 {
		t.Errorf("the provider was denied %v", slices.Sorted(maps.Keys(denied)))
	}
	// What an API server is asked for that has no watch lists, and what only happens when a token's
	// Secret is there already, or is another's.
	for _, what := range []string{"list nodes", "list certificatesigningrequests", "get secrets"} {
		used[what] = true
	}
	got, want := slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(granted(t)))
	if !slices.Equal(got, want) {
		t.Errorf("the provider has asked for\n%v\nand may\n%v", got, want)
	}
}

// asked is what the provider has asked of the API server, as it has taken that down, and what of it
// was denied: "get services/kubernetes". An API server that has just started, for the first time or
// again, does not know every role yet: what it denies before it allows it does not count. A right
// that is missing is never allowed, and one that was taken away is not allowed again.
func asked(t *testing.T) (used, denied map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(bench.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	used, denied = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb, Stage string
			ObjectRef   struct{ Resource, Subresource, Name string }
			Response    struct{ Code int } `json:"responseStatus"`
		}
		if json.Unmarshal([]byte(line), &e) != nil || e.ObjectRef.Resource == "" {
			continue // it is being written, or about no resource
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		switch {
		case e.ObjectRef.Subresource != "":
			what += "/" + e.ObjectRef.Subresource
		case e.ObjectRef.Resource == "services":
			what += "/" + e.ObjectRef.Name
		}
		used[what] = true
		switch {
		case e.Response.Code == http.StatusForbidden:
			denied[what] = true
		case e.Verb == "watch" && e.Stage != "ResponseStarted": // its end tells nothing of now
		default:
			delete(denied, what)
			if e.Verb == "watch" { // a client that may watch asks for no list again
				delete(denied, "list "+e.ObjectRef.Resource)
			}
		}
	}
	return used, denied
}

// granted is what rbac-provider.yaml allows the provider to ask for.
func granted(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for d := yaml.NewYAMLToJSONDecoder(bytes.NewReader(
		packaged(t, "kubernetes/rbac-provider.yaml"))); ; {
		var role rbac.ClusterRole // or a Role, which has the same rules
		if err := d.Decode(&role); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					what := strings.TrimSuffix(resource+"/"+strings.Join(rule.ResourceNames, "/"), "/")
					if resource != "signers" { // which is no request of its own
						all[verb+" "+what] = true
					}
				}
			}
		}
	}
}
