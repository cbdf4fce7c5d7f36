package rp

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// Keys are replaced without anything being unreadable at any time.
func TestRewrap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	_, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true", strings.ReplaceAll(withPrincipal, `"kubernetesAuth":{"useAzureAuth":true},`, ""))
	url := path(shownNode(t, text).Properties.ConfigURL)
	_, before := w.must(200, "GET", url, "")
	fresh := must(seal.NewKey())
	both := seal.Ring{Keys: []seal.Key{fresh, w.server.Keys.Keys[0]}}
	w.start(w.server.Store, both) // the restart after `keys rotate`
	if _, got := w.must(200, "GET", url, ""); got != before {
		t.Error("the bundle changed with the ring")
	}
	if n, err := w.server.Rewrap(t.Context()); err != nil || n != 3 { // client secret, bundle, token
		t.Errorf("%d boxes were sealed again: %v", n, err)
	}
	if n, err := w.server.Rewrap(t.Context()); err != nil || n != 0 {
		t.Errorf("%d boxes were sealed again the second time: %v", n, err)
	}
	w.start(w.server.Store, seal.Ring{Keys: []seal.Key{fresh}}) // the restart after `keys drop`
	if _, secret, err := w.server.clientSecret(t.Context(), clusterKey+"/n"); err != nil || secret != "hush-hush" {
		t.Errorf("the client secret: %q, %v", secret, err)
	}
	// The URL was signed with the key that is gone; its successor gives out the same.
	w.must(403, "GET", url, "")
	listed, err := w.server.liveURL(t.Context(), must(w.server.Store.Nodes.Get(t.Context(), clusterKey+"/n")).Value.Credential)
	if err != nil || listed == nil {
		t.Fatalf("%v, %v", listed, err)
	}
	if _, got := w.must(200, "GET", path(listed.ConfigURL), ""); got != before {
		t.Error("the bundle changed with the key")
	}
}

// When a node was last seen costs the store nothing until it is flushed, and is kept over a restart.
func TestLastSeen(t *testing.T) {
	t.Parallel()
	w, i := guarded(t)
	operator := i.claims(w.clock.now(), "operator")
	operator["oid"] = "operator"
	ops := "Authorization: Bearer " + i.sign(t, "one", operator)
	r, _ := w.must(201, "PUT", nodeURL("a"), `{"properties":{"continuousMonitoring":true,"azureAuth":{"method":"managedIdentity","managedIdentity":{"clientId":"`+clientA+`"}}}}`, ops)
	w.settled()
	w.clock.pass(time.Minute)
	seen := w.clock.now().Unix()
	w.must(304, "GET", nodeURL("a"), "", "Authorization: Bearer "+i.sign(t, "one", i.claims(w.clock.now(), clientA)), "If-None-Match: "+r.Header.Get("ETag"))
	key := clusterKey + "/a"
	if row := must(w.server.Store.Status.Get(t.Context(), key)); row.Exists() {
		t.Error("a poll wrote to the store")
	}
	w.clock.pass(time.Minute)
	w.must(304, "GET", nodeURL("a"), "", ops, "If-None-Match: "+r.Header.Get("ETag")) // somebody else looks
	if err := w.server.FlushSeen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row := must(w.server.Store.Status.Get(t.Context(), key)); row.Value.Seen != seen {
		t.Errorf("stored is %d, seen was %d", row.Value.Seen, seen)
	}
	w.start(w.server.Store, w.server.Keys)
	_, text := w.must(200, "GET", nodeURL("a"), "")
	if s := shownNode(t, text).Properties.Status; s == nil || s.LastSeen.Unix() != seen {
		t.Errorf("after a restart: %s", text)
	}
}

// A store that a newer program has written is left alone.
func TestNewerStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.server.Store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.server.Store.Client().Put(t.Context(), "/flexnode/v1/schema", "2"); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Store.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "newer flexnode-rp") {
		t.Errorf("got %v", err)
	}
}

// The provider's own identity: Resource Manager gives it a cluster's kubeconfig, and tells it callers' roles.
func TestAskingResourceManager(t *testing.T) {
	t.Parallel()
	sim := &azuresim.Sim{}
	server := httptest.NewTLSServer(sim)
	t.Cleanup(server.Close)
	const kubeconfig = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: https://factory.example:6443}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n"
	sim.Load(azuresim.World{
		TenantID: tenant, Subscriptions: []azuresim.Subscription{{ID: subscription}}, ResourceGroups: []string{"/subscriptions/" + subscription + "/resourceGroups/Edge"},
		Applications: []azuresim.Application{{ClientID: clientA, ObjectID: "provider", Secrets: []azuresim.Secret{{Value: "s"}}}},
		Clusters:     []azuresim.Cluster{{ID: cluster, AdminKubeconfig: kubeconfig}},
		Assignments: []azuresim.Assignment{
			{Scope: "/subscriptions/" + subscription, RoleID: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", PrincipalID: "provider"},
			{Scope: cluster, RoleID: "b24988ac-6180-42a0-ab88-20f7382dd24c", PrincipalID: "contributor"},
		},
	})
	options := policy.ClientOptions{Transport: server.Client(), Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: server.URL,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: server.URL, Audience: server.URL}}}}
	credential := must(azidentity.NewClientSecretCredential(tenant, clientA, "s", &azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true}))
	manager := &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}

	k := &Kubeconfigs{Manager: func(subscription string) (*armcontainerservice.ManagedClustersClient, error) {
		return armcontainerservice.NewManagedClustersClient(subscription, credential, manager)
	}}
	target, err := k.Target(t.Context(), store.Cluster{ID: cluster})
	if err != nil || target.ServerURL != "https://factory.example:6443" {
		t.Errorf("%s, %v", target.ServerURL, err)
	}
	if _, err := (&Kubeconfigs{}).Target(t.Context(), store.Cluster{ID: cluster}); err == nil || !strings.Contains(err.Error(), "names no kubeconfig") {
		t.Errorf("without an identity: %v", err)
	}

	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	roles := &ManagerRoles{Factory: must(armauthorization.NewClientFactory(subscription, credential, manager)), Now: func() time.Time { return now }}
	allowed := func(principal, action string) bool {
		return must(roles.Allowed(context.Background(), Caller{ObjectID: principal}, action, cluster+"/flexNodeConfig/n"))
	}
	const write = "Microsoft.ContainerService/managedClusters/flexNodeConfig/write"
	if !allowed("contributor", write) || allowed("contributor", "Microsoft.Authorization/roleAssignments/write") || allowed("nobody", write) {
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

// A request is a span below its caller's.
func TestTraces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spans := tracetest.NewSpanRecorder()
	w.server.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test")
	w.register("")
	w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`, "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ended := spans.Ended()
	last := ended[len(ended)-1]
	if !strings.HasPrefix(last.Name(), "PUT /subscriptions/{subscription}") || last.Parent().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the span %s below %s", last.Name(), last.Parent().TraceID())
	}
}
