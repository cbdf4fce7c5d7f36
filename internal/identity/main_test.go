package identity

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/azuresim/azuresimtest"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// server is one for all tests; each puts its own Azure behind it.
var (
	server *httptest.Server
	behind atomic.Pointer[azuresim.Sim]
)

func TestMain(m *testing.M) {
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		behind.Load().ServeHTTP(w, r)
	}))
	code := azuresimtest.Main(m)
	server.Close()
	os.Exit(code)
}

const (
	tenant       = azuresim.DefaultTenant
	subscription = "22222222-2222-2222-2222-222222222222"
	groupID      = "/subscriptions/" + subscription + "/resourceGroups/edge"
	clusterID    = groupID + "/providers/Microsoft.ContainerService/managedClusters/prod"
	clientID     = "aaaaaaaa-0000-0000-0000-000000000001"
	objectID     = "aaaaaaaa-0000-0000-0000-0000000000f1"
	canary       = "canary-secret"
)

// azure is an Azure with one service principal that may read the cluster.
func azure(t *testing.T) *azuresim.Sim {
	t.Helper()
	sim := &azuresim.Sim{}
	sim.Load(azuresim.World{
		Subscriptions:  []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{groupID},
		Applications: []azuresim.Application{{ClientID: clientID, ObjectID: objectID,
			Secrets: []azuresim.Secret{{Value: canary}}}},
		Clusters: []azuresim.Cluster{{ID: clusterID, Server: "https://prod.example.com:443",
			CA: "PEM", Entra: true, AzureRBAC: true}},
	})
	behind.Store(sim)
	return sim
}

// principal is the configuration of the service principal.
func principal() config.Azure {
	return config.Azure{
		TenantID: tenant, Cloud: config.PublicCloud, AuthorityHost: server.URL,
		ResourceManagerEndpoint: server.URL,
		ServicePrincipal: &config.ServicePrincipal{TenantID: tenant, ClientID: clientID,
			ClientSecret: canary},
		TargetCluster:     config.TargetCluster{ResourceID: clusterID},
		KubeletCredential: config.CredentialToken,
	}
}
