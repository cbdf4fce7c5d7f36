package aks

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/azuresim/azuresimtest"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// server is one for all tests; each puts its own Azure behind it.
var (
	server *httptest.Server
	behind atomic.Pointer[http.Handler]
)

func TestMain(m *testing.M) {
	server = httptest.NewTLSServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { (*behind.Load()).ServeHTTP(w, r) }))
	code := azuresimtest.Main(m)
	server.Close()
	os.Exit(code)
}

const (
	subscription = "22222222-2222-2222-2222-222222222222"
	groupID      = "/subscriptions/" + subscription + "/resourceGroups/edge"
	clusterID    = groupID + "/providers/Microsoft.ContainerService/managedClusters/prod"
	clientID     = "aaaaaaaa-0000-0000-0000-000000000001"
	objectID     = "aaaaaaaa-0000-0000-0000-0000000000f1"
	canary       = "canary-secret"
)

// azure is an Azure with one cluster and a service principal that has roles on it.
func azure(cluster azuresim.Cluster, roles ...string) *azuresim.Sim {
	cluster.ID, cluster.Version = clusterID, "1.34.4"
	cluster.Server, cluster.CA = "https://prod.example.com:443", "PEM"
	sim := &azuresim.Sim{}
	sim.Load(azuresim.World{
		Subscriptions:  []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{groupID},
		Applications: []azuresim.Application{{ClientID: clientID, ObjectID: objectID,
			Secrets: []azuresim.Secret{{Value: canary}}}},
		Clusters: []azuresim.Cluster{cluster},
	})
	for _, role := range roles {
		sim.Assign(azuresim.Assignment{Scope: clusterID, RoleID: config.Roles()[role],
			PrincipalID: objectID})
	}
	return sim
}

// read asks the Azure behind the server about the cluster.
func read(t *testing.T, handler http.Handler) (Cluster, error) {
	t.Helper()
	behind.Store(&handler)
	c := config.Azure{
		TenantID: azuresim.DefaultTenant, Cloud: config.PublicCloud,
		AuthorityHost: server.URL, ResourceManagerEndpoint: server.URL,
		ServicePrincipal: &config.ServicePrincipal{TenantID: azuresim.DefaultTenant,
			ClientID: clientID, ClientSecret: canary},
		TargetCluster: config.TargetCluster{ResourceID: clusterID},
	}
	credential, err := identity.Manager(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	options := identity.ARM(c, nil)
	options.Retry = policy.RetryOptions{MaxRetries: 1, RetryDelay: time.Millisecond}
	client := Client{Target: c.TargetCluster, Credential: credential, Options: options}
	return client.Cluster(t.Context())
}

// kubeconfig is the administrator's kubeconfig, which holds a secret.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: prod, cluster: {server: "https://prod.example.com:443",
  certificate-authority-data: UEVN}}]
contexts: [{name: admin, context: {cluster: prod, user: admin}}]
current-context: admin
users: [{name: admin, user: {token: ` + canary + `}}]
`

func TestCluster(t *testing.T) {
	plain := Cluster{Server: "https://prod.example.com:443", CA: "PEM", Version: "1.34.4"}
	entra, both := plain, plain
	entra.Entra = true
	both.Entra, both.AzureRBAC = true, true
	reader, user := config.RoleReader, config.RoleClusterUser
	tests := []struct {
		name    string
		cluster azuresim.Cluster
		roles   []string
		want    Cluster
	}{
		{"Entra and Azure RBAC", azuresim.Cluster{Entra: true, AzureRBAC: true},
			[]string{user}, both},
		{"Entra alone", azuresim.Cluster{Entra: true}, []string{user}, entra},
		{"neither", azuresim.Cluster{AdminKubeconfig: kubeconfig}, []string{user}, plain},
		{"only the administrator's kubeconfig",
			azuresim.Cluster{Entra: true, AzureRBAC: true, AdminKubeconfig: kubeconfig},
			[]string{reader, config.RoleClusterAdmin}, both},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read(t, azure(tt.cluster, tt.roles...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("cluster (-want +got):\n%s", diff)
			}
		})
	}
}

// replaced answers requests that end in a suffix with a body of its own.
func replaced(sim http.Handler, suffix, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(strings.ToLower(r.URL.Path), strings.ToLower(suffix)) {
			sim.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	})
}

// credentials is an answer with one kubeconfig, encoded so many times.
func credentials(kubeconfig string, times int) string {
	for range times {
		kubeconfig = base64.StdEncoding.EncodeToString([]byte(kubeconfig))
	}
	return `{"kubeconfigs": [null, {"name": "clusterUser", "value": "` + kubeconfig + `"}]}`
}

func TestKubeconfigOfAzure(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"encoded once", credentials(kubeconfig, 1), ""},
		{"encoded twice", credentials(kubeconfig, 2), ""},
		{"none", `{"kubeconfigs": []}`, "Azure has no kubeconfig of the cluster"},
		{"nonsense", credentials("{"+canary, 1), "cannot read the kubeconfig"},
		{"no server", credentials(strings.Replace(kubeconfig, "https://prod.example.com:443", "",
			1), 1), "names no server, or no CA"},
		{"no CA", credentials(strings.Replace(kubeconfig, "UEVN", `""`, 1), 1),
			"names no server, or no CA"},
		{"no context", credentials(strings.Replace(kubeconfig, "current-context: admin", "", 1), 1),
			"names no server, or no CA"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sim := azure(azuresim.Cluster{Entra: true}, config.RoleClusterUser)
			got, err := read(t, replaced(sim, "/listClusterUserCredential", tt.body))
			if tt.want == "" {
				if err != nil || got.Server != "https://prod.example.com:443" || got.CA != "PEM" {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), canary) {
				t.Errorf("%v, want %q and no secret", err, tt.want)
			}
		})
	}
}

// The networks of the pods are returned in their usual spelling; what is none is left out.
func TestPodNetworks(t *testing.T) {
	for name, tt := range map[string]struct {
		profile string
		want    []string
	}{
		"one": {`{"podCidr": "10.244.0.0/16"}`, []string{"10.244.0.0/16"}},
		"dual stack": {`{"podCidr": "x", "podCidrs": ["10.1.2.3/16", "FD00::/64"]}`,
			[]string{"10.1.0.0/16", "fd00::/64"}},
		"none":     {`{"networkPlugin": "azure"}`, nil},
		"nonsense": {`{"podCidrs": [null, "", "10.244.0.0", "::ffff:10.0.0.0/112"]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sim := azure(azuresim.Cluster{Entra: true}, config.RoleClusterUser)
			got, err := read(t, replaced(sim, "/managedClusters/prod",
				`{"properties": {"networkProfile": `+tt.profile+`}}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.PodCIDRs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	cluster := azuresim.Cluster{Entra: true, PodCIDRs: []string{"10.244.0.0/16", "fd00::/64"}}
	got, err := read(t, azure(cluster, config.RoleClusterUser))
	if diff := cmp.Diff(cluster.PodCIDRs, got.PodCIDRs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// The address of the DNS service is returned as Azure has it.
func TestDNSServiceIP(t *testing.T) {
	for _, want := range []string{"10.96.0.10", ""} {
		cluster := azuresim.Cluster{Entra: true, DNSServiceIP: want}
		got, err := read(t, azure(cluster, config.RoleClusterUser))
		if err != nil || got.DNSServiceIP != want {
			t.Errorf("%q, %v, want %q", got.DNSServiceIP, err, want)
		}
	}
}

// A cluster without properties is one of which nothing is known but the address.
func TestClusterWithoutProperties(t *testing.T) {
	sim := azure(azuresim.Cluster{Entra: true}, config.RoleClusterUser)
	got, err := read(t, replaced(sim, "/managedClusters/prod", `{"location": "lab"}`))
	if err != nil || got.Entra || got.Version != "" || got.Server == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name  string
		sim   *azuresim.Sim
		wants []string
	}{
		{"no role", azure(azuresim.Cluster{}),
			[]string{"cannot read the cluster: ", config.RoleClusterUser, clusterID}},
		{"may read, but has no kubeconfig", azure(azuresim.Cluster{}, config.RoleReader),
			[]string{"cannot read the address of the API server: ", config.RoleClusterUser}},
	}
	for _, tt := range tests {
		_, err := read(t, tt.sim)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		for _, want := range tt.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", tt.name, err, want)
			}
		}
	}
}
