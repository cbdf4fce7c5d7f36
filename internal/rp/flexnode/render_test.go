package flexnode

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// goldens are the bundles that the agent's own tests render nodes from (internal/node), so that the
// two cannot drift apart unseen.
const goldens = "../../../api/flexnode/v20260501preview/testdata"

// golden is one of the bundles.
type golden struct {
	desired api.Desired
	pod     string
	grants  Grants
}

func goldenBundles() map[string]golden {
	principal := api.AzureAuth{
		Method: api.ServicePrincipal,
		ServicePrincipal: &api.ServicePrincipalAuth{ClientID: clientA, ClientTenant: tenant,
			SecretExpires: "2027-01-31"},
	}
	azure := api.KubernetesAuth{UseAzureAuth: true}
	return map[string]golden{
		"token": {
			desired: api.Desired{NodeConfig: api.NodeConfig{
				MaxPods: 50, Labels: map[string]string{"environment": "prod"},
				Taints: []string{"edge=true:NoSchedule"},
			}},
			pod: "10.200.3.0/24", grants: Grants{Token: "abcdef.0123456789abcdef"},
		},
		"service-principal": {
			desired: api.Desired{
				ContinuousMonitoring: true, AzureAuth: principal, KubernetesAuth: azure,
				Versions: api.Versions{Kubernetes: "1.34.4"},
			},
			grants: Grants{ClientSecret: "a-secret"},
		},
		"token-monitored": {
			desired: api.Desired{
				ContinuousMonitoring: true, AzureAuth: principal,
				DriftPolicies: map[string]string{"unit": "repair", "sysctl": "off"},
			},
			grants: Grants{ClientSecret: "a-secret", Token: "abcdef.0123456789abcdef"},
		},
		"managed-identity": {desired: api.Desired{
			AzureAuth: api.AzureAuth{
				Method:          api.ManagedIdentity,
				ManagedIdentity: &api.ManagedIdentityAuth{ClientID: clientB},
				Registries:      []string{"contoso.azurecr.io"},
			},
			KubernetesAuth: azure,
			NodeConfig: api.NodeConfig{Kubelet: api.Kubelet{
				KubeReserved: map[string]string{"cpu": "100m"}, ImageGCHighThreshold: 90,
				Verbosity: 4, NodeIP: "192.0.2.7",
			}},
		}},
		"arc": {desired: api.Desired{
			AzureAuth: api.AzureAuth{Method: api.Arc}, KubernetesAuth: azure,
		}},
		"arc-onboarding": {
			desired: api.Desired{
				AzureAuth: api.AzureAuth{Method: api.Arc, Arc: &api.ArcAuth{
					AutoRoleAssignment: true,
					Onboarding:         &api.ServicePrincipalAuth{ClientID: clientA},
				}},
				KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true, KubeletCredential: "token"},
			},
			grants: Grants{ClientSecret: "a-secret"},
		},
	}
}

// What the agent reads in its own tests is what is rendered here.
func TestBundles(t *testing.T) {
	defaults := DefaultsLayer(object{
		"artifacts": object{"mirror": "https://mirror.example"},
		"azure":     object{"authorityHost": "https://login.example"},
	})
	facts := FactsLayer(someFacts(), cluster)
	for name, tt := range goldenBundles() {
		t.Run(name, func(t *testing.T) {
			n := Node{ID: nodeID, Desired: complete(tt.desired)}
			versions, problems := chooser{
				want: tt.desired.Versions, server: "1.36.3",
			}.choose()
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			n.Chosen = Chosen{Versions: versions, PodCIDR: tt.pod}
			parent := Parent{FactsLayer: facts, Defaults: defaults}
			own, problems := n.wholeOwnLayer("", parent)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			whole := must(Config(Revision{Own: own}, defaults, facts, tt.grants))
			got := append(must(json.MarshalIndent(object{
				"schemaVersion": config.SchemaVersion, "config": whole,
			}, "", "  ")), '\n')
			path := filepath.Join(goldens, name+".json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(must(os.ReadFile(path))), string(got)); diff != "" {
				t.Errorf("the bundle is another (-want +got); make golden if that is meant:\n%s",
					diff)
			}
			if problems := checkNode(n, own, parent); len(problems) > 0 {
				t.Errorf("the agent does not take it: %v", problems)
			}
		})
	}
}

// A bundle tells the agent which resource, and which version of it, its configuration is from.
func TestABundleSaysWhatItIsFrom(t *testing.T) {
	w := newWorld(t)
	w.put(api.Desired{})
	whole := must(Config(*w.last(), nil, w.parent.FactsLayer, Grants{Token: anyToken}))
	from := api.BundleResource{ID: nodeID, UID: "u-1", ConfigVersion: "1800000000", Epoch: 3}
	text := must(json.Marshal(Bundle(whole, from)))
	if _, _, err := config.Parse(text, config.Host{HostName: "x", Arch: "amd64"}); err != nil {
		t.Fatal(err)
	}
	got, err := config.ResourceOf(text)
	if err != nil || api.BundleResource(*got) != from {
		t.Errorf("%+v, %v", got, err)
	}
	bare := must(config.Canonical(must(json.Marshal(whole))))
	if string(must(config.Canonical(text))) != string(bare) {
		t.Error("the bundle is another document than its configuration")
	}
}

func TestFactsComeBackFromTheirLayer(t *testing.T) {
	for _, f := range []Facts{{}, someFacts(), {ServerURL: "https://x", Location: "y"}} {
		got, err := FactsOf(FactsLayer(f, cluster).Text)
		if err != nil || got != f {
			t.Errorf("%+v comes back as %+v, %v", f, got, err)
		}
	}
	if _, err := FactsOf([]byte("{")); err == nil {
		t.Error("half a layer is read")
	}
	if _, err := ReadLayer([]byte("{")); err == nil {
		t.Error("half a layer is read")
	}
	if _, err := Config(Revision{Own: []byte("{")}, nil, nil, Grants{}); err == nil {
		t.Error("half a revision is read")
	}
}

// An Arc machine in another subscription is enrolled there (the review's minor finding on
// render.go).
func TestArcMachineInAnotherSubscription(t *testing.T) {
	w := newWorld(t)
	machine := "/subscriptions/" + subscription2 +
		"/resourceGroups/Arc/providers/Microsoft.HybridCompute/machines/M-1"
	w.put(api.Desired{
		ContinuousMonitoring: true, KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true},
		AzureAuth: api.AzureAuth{
			Method: api.Arc, Arc: &api.ArcAuth{MachineResourceID: machine},
		},
	})
	c, _, err := config.Parse([]byte(w.config(w.last())),
		config.Host{HostName: "x", Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, name := c.Azure.TargetCluster.ID()
	got := []string{c.Azure.SubscriptionID, c.Azure.Arc.ResourceGroup, c.Azure.Arc.MachineName,
		name,
		c.Azure.TargetCluster.ResourceID, w.node.Identity}
	want := []string{subscription2, "Arc", "M-1", "Factory", cluster,
		"mirid:" + strings.ToLower(machine)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// No secret is in a node or a revision, whatever is asked for.
func TestSecretsAreNowhere(t *testing.T) {
	g := generator(t)
	for range 300 {
		w := newWorld(t)
		for range 3 {
			if d := randomDesired(g); w.put(d).Revision == nil && w.node.Revision == 0 {
				t.Fatal("not rendered")
			}
			text := string(must(json.Marshal(w.node))) + string(must(w.history.Row()))
			if strings.Contains(text, "-secret") {
				t.Fatalf("a secret is stored: %s", text)
			}
		}
	}
}
