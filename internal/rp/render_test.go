package rp

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// goldens are the bundles that the agent's own tests render nodes from (internal/node), so that the two cannot drift apart unseen.
const goldens = "../../api/flexnode/v20260501preview/testdata"

func TestBundles(t *testing.T) {
	facts := store.Facts{ServerURL: "https://factory.example:6443", CACertData: base64.StdEncoding.EncodeToString(placeholderCA), DNSServiceIP: "10.96.0.10", TenantID: tenant, Location: "westeurope"}
	defaults := object{"artifacts": object{"mirror": "https://mirror.example"}, "azure": object{"authorityHost": "https://login.example"}}
	tests := map[string]struct {
		desired api.Desired
		pod     string
		grants  grants
	}{
		"token": {desired: api.Desired{NodeConfig: api.NodeConfig{MaxPods: 50, Labels: map[string]string{"environment": "prod"}, Taints: []string{"edge=true:NoSchedule"}}},
			pod: "10.200.3.0/24", grants: grants{Token: "abcdef.0123456789abcdef"}},
		"service-principal": {desired: api.Desired{ContinuousMonitoring: true, AzureAuth: api.AzureAuth{Method: api.ServicePrincipal, ServicePrincipal: &api.ServicePrincipalAuth{ClientID: clientA, ClientTenant: tenant}},
			KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true}, Versions: api.Versions{Kubernetes: "1.34.4"}}, grants: grants{ClientSecret: "a-secret"}},
		"token-monitored": {desired: api.Desired{ContinuousMonitoring: true, AzureAuth: api.AzureAuth{Method: api.ServicePrincipal, ServicePrincipal: &api.ServicePrincipalAuth{ClientID: clientA, ClientTenant: tenant}}},
			grants: grants{ClientSecret: "a-secret", Token: "abcdef.0123456789abcdef"}},
		"managed-identity": {desired: api.Desired{AzureAuth: api.AzureAuth{Method: api.ManagedIdentity, ManagedIdentity: &api.ManagedIdentityAuth{ClientID: clientB}}, KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true},
			NodeConfig: api.NodeConfig{Kubelet: api.Kubelet{KubeReserved: map[string]string{"cpu": "100m"}, ImageGCHighThreshold: 90, Verbosity: 4, NodeIP: "192.0.2.7"}}}},
		"arc": {desired: api.Desired{AzureAuth: api.AzureAuth{Method: api.Arc}, KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			complete(&tt.desired)
			versions, problems := resolveVersions(tt.desired.Versions, "1.35.4")
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			n := store.Node{ID: cluster + "/flexNodeConfig/Edge-1", Desired: tt.desired, Resolved: store.Resolved{Versions: versions, PodCIDR: tt.pod}}
			got := append(must(json.MarshalIndent(object{"config": render(n, facts, defaults, tt.grants)}, "", "  ")), '\n')
			path := filepath.Join(goldens, name+".json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(must(os.ReadFile(path))), string(got)); diff != "" {
				t.Errorf("the bundle is another (-want +got); make golden if that is meant:\n%s", diff)
			}
			if problems := checkNode(n, facts, defaults, tt.grants); len(problems) > 0 {
				t.Errorf("the agent does not take it: %v", problems)
			}
		})
	}
}
