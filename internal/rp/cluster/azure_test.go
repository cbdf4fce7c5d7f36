package cluster

import (
	"errors"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// ownerRole is the role "Owner" of Azure.
const ownerRole = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"

// newManager returns a source that asks a simulated Azure with one cluster, and its clock.
func newManager(t *testing.T, k azuresim.Cluster, now func() time.Time) (
	*ResourceManager, *azuresim.Sim,
) {
	const client = "aaaaaaaa-0000-0000-0000-00000000000a"
	sim := &azuresim.Sim{}
	server := httptest.NewTLSServer(sim)
	t.Cleanup(server.Close)
	k.ID = factoryID
	sim.Load(azuresim.World{
		TenantID: tenant, Subscriptions: []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{"/subscriptions/" + subscription + "/resourceGroups/Edge"},
		Applications: []azuresim.Application{{ClientID: client, ObjectID: "provider",
			Secrets: []azuresim.Secret{{Value: "s"}}}},
		Clusters: []azuresim.Cluster{k},
		Assignments: []azuresim.Assignment{{Scope: "/subscriptions/" + subscription,
			RoleID: ownerRole, PrincipalID: "provider"}},
	})
	options := policy.ClientOptions{Transport: server.Client(), Cloud: cloud.Configuration{
		ActiveDirectoryAuthorityHost: server.URL,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: server.URL, Audience: server.URL}},
	}}
	identity := must(azidentity.NewClientSecretCredential(tenant, client, "s",
		&azidentity.ClientSecretCredentialOptions{ClientOptions: options,
			DisableInstanceDiscovery: true}))
	made := func(s string) (*armcontainerservice.ManagedClustersClient, error) {
		return armcontainerservice.NewManagedClustersClient(s, identity,
			&arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true})
	}
	return &ResourceManager{Clusters: made, Tokens: &fakeTokens{}, Now: now}, sim
}

// A cluster without local accounts is reached with the provider's own tokens, which are renewed
// without a new connection.
func TestLocalAccountsAreDisabled(t *testing.T) {
	var token atomic.Pointer[string]
	first, second := "token-0", "token-1"
	token.Store(&first)
	server, ca := apiServer(t, &token)
	m, _ := newManager(t, azuresim.Cluster{Server: server, CA: ca, Entra: true,
		LocalAccountsDisabled: true}, time.Now)
	s := &Sources{Manager: m}
	access := must(s.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false))
	if access.Config.ExecProvider != nil || access.Config.AuthProvider != nil {
		t.Error("it runs what Resource Manager says")
	}
	access.Local = true // as the test's API server is
	c := must(Dial(access))
	equal(t, "the server", must(c.ask(t.Context())).server, c.server("u"))
	tokens := m.Tokens.(*fakeTokens)
	equal(t, "the scope", *tokens.scope.Load(), "6dae42f8-4368-4678-94ff-3960e28e3630/.default")
	tokens.issued.Add(1)
	token.Store(&second)
	must(c.ask(t.Context()))
	equal(t, "it is in doubt with the next token", c.doubtful(), false)
}

// Static credentials are used only if the operator allows them.
func TestStaticCredentials(t *testing.T) {
	admin := kubeconfig("https://factory.example:6443", string(testCA()), "admin-token")
	m, _ := newManager(t, azuresim.Cluster{AdminKubeconfig: admin}, time.Now)
	_, err := m.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false)
	if !errors.Is(err, errStatic) {
		t.Errorf("without the setting: %v", err)
	}
	m, _ = newManager(t, azuresim.Cluster{AdminKubeconfig: admin}, time.Now)
	m.Admin = true
	access, err := m.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false)
	if err != nil || access.Config.BearerToken != "admin-token" ||
		access.Config.Host != "https://factory.example:6443" {
		t.Errorf("with the setting: %+v, %v", access, err)
	}
}

// Resource Manager gets few requests, and an earlier one if its last answer was of no use.
func TestAnswersOfResourceManager(t *testing.T) {
	var now atomic.Int64
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	m, sim := newManager(t, azuresim.Cluster{Server: "https://one.example", CA: string(testCA()),
		Entra: true}, clock)
	host := func(again bool) string {
		return must(m.Access(t.Context(), flexnode.Cluster{ID: factoryID}, again)).Config.Host
	}
	equal(t, "at first", host(false), "https://one.example")
	sim.AddCluster(azuresim.Cluster{ID: strings.ToLower(factoryID), Server: "https://two.example",
		CA: string(testCA()), Entra: true})
	equal(t, "at once", host(true), "https://one.example")
	now.Add(int64(refusedAge / time.Second))
	equal(t, "as long as it is of use", host(false), "https://one.example")
	equal(t, "after a refusal", host(true), "https://two.example")
	// Answers about clusters that are not asked for any more are forgotten.
	now.Add(int64(answerAge / time.Second))
	if _, err := m.Access(t.Context(), flexnode.Cluster{ID: factoryID + "2"}, false); err == nil {
		t.Error("a cluster that does not exist has a kubeconfig")
	}
	known := 0
	m.known.Range(func(any, any) bool { known++; return true })
	equal(t, "known answers", known, 1)
}
