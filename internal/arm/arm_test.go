package arm

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	const aks = "Microsoft.ContainerService"
	const cluster = "/subscriptions/S/resourceGroups/G/providers/" + aks + "/managedClusters/C"
	tests := []struct {
		path string
		want ID
	}{
		{"/Subscriptions", ID{}},
		{"/subscriptions/S/resourceGroups", ID{Subscription: "S"}},
		{"/subscriptions/S", ID{Subscription: "S"}},
		{"/SUBSCRIPTIONS/S/resourcegroups/G/", ID{Subscription: "S", ResourceGroup: "G"}},
		{cluster, ID{Subscription: "S", ResourceGroup: "G", Namespace: "Microsoft.ContainerService",
			Types: []string{"managedClusters"}, Names: []string{"C"}}},
		{cluster + "/agentPools/p", ID{Subscription: "S", ResourceGroup: "G", Namespace: aks,
			Types: []string{"managedClusters", "agentPools"}, Names: []string{"C", "p"}}},
		{"/subscriptions/S/providers/" + aks + "/managedClusters",
			ID{Subscription: "S", Namespace: aks, Types: []string{"managedClusters"}}},
		{cluster + "/PROVIDERS/Microsoft.Authorization/roleAssignments/a", ID{
			Subscription: "S", ResourceGroup: "G", Namespace: "Microsoft.Authorization",
			Types: []string{"roleAssignments"}, Names: []string{"a"}, Parent: cluster}},
		{"/providers/Microsoft.ContainerService/operations",
			ID{Namespace: "Microsoft.ContainerService", Types: []string{"operations"}}},
	}
	for _, tt := range tests {
		got, err := Parse(tt.path)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.path, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(ID{})); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", tt.path, diff)
		}
		if got.Key() != Key(strings.ToUpper(tt.path)) {
			t.Errorf("the key of %q depends on its casing", tt.path)
		}
	}
	for _, bad := range []string{"/resourceGroups/G", "/subscriptions/S/G", cluster + "//x"} {
		if id, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", bad, id)
		}
	}
}

func TestErrorIsARMs(t *testing.T) {
	w := httptest.NewRecorder()
	Errorf(404, "ResourceNotFound", "The Resource %s was not found.", "x").Write(w)
	const want = `{"error":{"code":"ResourceNotFound","message":"The Resource x was not found."}}`
	if w.Code != 404 || w.Header().Get("x-ms-error-code") != "ResourceNotFound" ||
		strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
