package front

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	var asked, throttled atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/roleAssignments") {
				asked.Add(1)
				if after := throttled.Load(); after > 0 {
					w.Header().Set("Retry-After", strconv.FormatInt(after, 10))
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
			}
			sim.ServeHTTP(w, r)
		}))
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
			{Scope: "/", RoleID: contributor, PrincipalID: "global"},
			{Scope: cluster, RoleID: contributor, PrincipalID: "denied"},
		},
		Denials: []azuresim.Denial{
			{Name: "a", Scope: cluster, Actions: []string{"*/write"}, PrincipalIDs: []string{"denied"}},
			{Name: "b", Scope: cluster, Actions: []string{"*/delete"}, PrincipalIDs: []string{everyone},
				Except: []string{"global"}},
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
	const remove = "Microsoft.ContainerService/managedClusters/flexNodeConfig/delete"
	if !allowed("global", write) || !allowed("global", remove) || allowed("denied", write) ||
		allowed("denied", remove) || !allowed("denied", strings.Replace(write, "write", "read", 1)) {
		t.Error("assignments above the subscription, or deny assignments, are not heeded")
	}
	// Whatever a caller asks about, Resource Manager is asked once.
	before := asked.Load()
	var running sync.WaitGroup
	for n := range 100 {
		running.Go(func() {
			scope := cluster + "/flexNodeConfig/n" + strconv.Itoa(n)
			if must(roles.Allowed(context.Background(), Caller{ObjectID: "stranger"}, write, scope)) {
				t.Error("a stranger is allowed")
			}
		})
	}
	running.Wait()
	if got := asked.Load() - before; got != 1 {
		t.Errorf("it was asked %d times", got)
	}
	throttled.Store(40)
	before = asked.Load()
	for range 3 {
		_, err := roles.Allowed(context.Background(), Caller{ObjectID: "late"}, write, cluster)
		if err == nil || !strings.Contains(err.Error(), "TooManyRequests") {
			t.Errorf("throttled: %v", err)
		}
	}
	if got := asked.Load() - before; got != 1 {
		t.Errorf("it was asked %d times while it throttles", got)
	}
}
