package front

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

const (
	reader      = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
	contributor = "b24988ac-6180-42a0-ab88-20f7382dd24c"
)

// Resource Manager is asked for callers' roles, with the provider's own identity.
func TestManagerRoles(t *testing.T) {
	t.Parallel()
	sim := &azuresim.Sim{}
	server := httptest.NewTLSServer(sim)
	t.Cleanup(server.Close)
	sim.Load(azuresim.World{
		TenantID: tenant, Subscriptions: []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{"/subscriptions/" + subscription + "/resourceGroups/Edge"},
		Applications: []azuresim.Application{{
			ClientID: clientA, ObjectID: "provider", Secrets: []azuresim.Secret{{Value: "s"}},
		}},
		Clusters: []azuresim.Cluster{{ID: cluster}},
		Assignments: []azuresim.Assignment{
			{Scope: "/subscriptions/" + subscription, RoleID: reader, PrincipalID: "provider"},
			{Scope: cluster, RoleID: contributor, PrincipalID: "contributor"},
		},
	})
	options := policy.ClientOptions{Transport: server.Client(), Cloud: cloud.Configuration{
		ActiveDirectoryAuthorityHost: server.URL,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: server.URL, Audience: server.URL},
		},
	}}
	credential := must(azidentity.NewClientSecretCredential(tenant, clientA, "s",
		&azidentity.ClientSecretCredentialOptions{
			ClientOptions: options, DisableInstanceDiscovery: true,
		}))
	manager := &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	roles := &ManagerRoles{
		Factory: must(armauthorization.NewClientFactory(subscription, credential, manager)),
		Now:     func() time.Time { return now },
	}
	allowed := func(principal, action string) bool {
		return must(roles.Allowed(context.Background(), Caller{ObjectID: principal}, action,
			cluster+"/flexNodeConfig/n"))
	}
	const write = "Microsoft.ContainerService/managedClusters/flexNodeConfig/write"
	if !allowed("contributor", write) || allowed("nobody", write) ||
		allowed("contributor", "Microsoft.Authorization/roleAssignments/write") {
		t.Error("roles are not as Resource Manager has them")
	}
	sim.Revoke("contributor")
	if !allowed("contributor", write) {
		t.Error("an answer is not remembered")
	}
	now = now.Add(remembered)
	if allowed("contributor", write) {
		t.Error("a role that was taken away works on")
	}
}
