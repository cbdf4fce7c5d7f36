package azuresim_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/hybridcompute/armhybridcompute"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/azuresim/azuresimtest"
)

// These tests use only Azure's SDK on the client side, so what passes is what it accepts.

const (
	subscription = "22222222-2222-2222-2222-222222222222"
	group        = "edge"
	groupID      = "/subscriptions/" + subscription + "/resourceGroups/" + group
	clusterID    = groupID + "/providers/Microsoft.ContainerService/managedClusters/prod"
	owner        = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
	onboarding   = "b64e21ea-ac4e-4cdf-9dc9-5b892992bee7"
	clusterUser  = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f"
)

// azure is a running simulation with an operator, who owns the subscription, and a stranger without
// roles.
type azure struct {
	*azuresim.Sim
	server *httptest.Server
	clock  *clock
}

type clock struct {
	mu  sync.Mutex
	off time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

var (
	operator = azuresim.Application{ClientID: "aaaaaaaa-0000-0000-0000-000000000001",
		ObjectID: "aaaaaaaa-0000-0000-0000-0000000000f1", Name: "operator",
		Secrets: []azuresim.Secret{{Value: "correct-horse"}}}
	stranger = azuresim.Application{ClientID: "aaaaaaaa-0000-0000-0000-000000000002",
		ObjectID: "aaaaaaaa-0000-0000-0000-0000000000f2", Name: "stranger",
		Secrets: []azuresim.Secret{{Value: "battery-staple"},
			{Value: "last-years", Expires: time.Now().Add(-time.Hour)}}}
)

func start(t *testing.T) *azure {
	t.Helper()
	a := &azure{Sim: &azuresim.Sim{}, clock: &clock{}}
	a.Now = a.clock.now
	a.Load(azuresim.World{
		Subscriptions:  []azuresim.Subscription{{ID: subscription, Name: "Edge"}},
		ResourceGroups: []string{groupID},
		Applications:   []azuresim.Application{operator, stranger},
		Users: []azuresim.User{{ObjectID: "bbbbbbbb-0000-0000-0000-0000000000f1",
			Name: "ada@example.com"}},
		Clusters: []azuresim.Cluster{{ID: clusterID, Location: "lab", Version: "1.34.4",
			Server: "https://prod.example.com:443", CA: "PEM", AdminKubeconfig: "admin",
			Entra: true, AzureRBAC: true, LocalAccountsDisabled: true}},
		Assignments: []azuresim.Assignment{{Scope: "/subscriptions/" + subscription,
			RoleID: owner, PrincipalID: operator.ObjectID}},
	})
	a.server = httptest.NewTLSServer(a.Sim)
	t.Cleanup(a.server.Close)
	return a
}

func (a *azure) options() policy.ClientOptions {
	return policy.ClientOptions{
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: a.server.URL,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: a.server.URL, Audience: a.server.URL},
			}},
		Transport: a.server.Client(),
		Retry:     policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Millisecond},
	}
}

func (a *azure) credential(t *testing.T, app azuresim.Application,
	secret string) azcore.TokenCredential {
	t.Helper()
	c, err := azidentity.NewClientSecretCredential(azuresim.DefaultTenant, app.ClientID, secret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: a.options(),
			DisableInstanceDiscovery: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a *azure) arm(t *testing.T) (azcore.TokenCredential, *arm.ClientOptions) {
	return a.credential(t, operator, "correct-horse"),
		&arm.ClientOptions{ClientOptions: a.options()}
}

func scope(a *azure) policy.TokenRequestOptions {
	return policy.TokenRequestOptions{Scopes: []string{a.server.URL + "/.default"}}
}

func TestClientSecret(t *testing.T) {
	a := start(t)
	token, err := a.credential(t, operator, "correct-horse").GetToken(t.Context(), scope(a))
	if err != nil || len(strings.Split(token.Token, ".")) != 3 ||
		time.Until(token.ExpiresOn) < 50*time.Minute {
		t.Errorf("token %v, %v", token.ExpiresOn, err)
	}
	for _, tt := range []struct {
		name, secret, code string
		app                azuresim.Application
	}{
		{"wrong", "guess", "AADSTS7000215", operator},
		{"expired", "last-years", "AADSTS7000222", stranger},
		{"unknown application", "x", "AADSTS700016",
			azuresim.Application{ClientID: "cccccccc-0000-0000-0000-000000000001"}},
	} {
		_, err := a.credential(t, tt.app, tt.secret).GetToken(t.Context(), scope(a))
		if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); !ok ||
			!strings.Contains(failed.Error(), tt.code) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
		}
	}
	_, err = a.credential(t, operator, "correct-horse").GetToken(t.Context(),
		policy.TokenRequestOptions{Scopes: []string{"https://nowhere.example.com/.default"}})
	if err == nil || !strings.Contains(err.Error(), "AADSTS500011") {
		t.Errorf("unknown resource: %v", err)
	}
	for _, resource := range []string{"api://" + stranger.ClientID, stranger.ClientID} {
		token, err := a.credential(t, operator, "correct-horse").GetToken(t.Context(),
			policy.TokenRequestOptions{Scopes: []string{resource + "/.default"}})
		var said jwt.RegisteredClaims
		_, _, failed := jwt.NewParser().ParseUnverified(token.Token, &said)
		if err != nil || failed != nil || !slices.Equal(said.Audience, []string{resource}) {
			t.Errorf("for the application %s: %v, %v, audience %q", resource, err, failed, said.Audience)
		}
	}
}

func TestClientCertificate(t *testing.T) {
	a := start(t)
	cert, key := azuresimtest.Certificate(t)
	get := func() error {
		c, err := azidentity.NewClientCertificateCredential(azuresim.DefaultTenant,
			"aaaaaaaa-0000-0000-0000-000000000003", []*x509.Certificate{cert}, key,
			&azidentity.ClientCertificateCredentialOptions{ClientOptions: a.options(),
				DisableInstanceDiscovery: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.GetToken(t.Context(), scope(a))
		return err
	}
	app := azuresim.Application{ClientID: "aaaaaaaa-0000-0000-0000-000000000003",
		ObjectID: "aaaaaaaa-0000-0000-0000-0000000000f3"}
	a.AddApplication(app)
	if err := get(); err == nil || !strings.Contains(err.Error(), "AADSTS700027") {
		t.Errorf("with a certificate that is not registered: %v", err)
	}
	app.Certificates = []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: cert.Raw}))}
	a.AddApplication(app)
	if err := get(); err != nil {
		t.Errorf("with the registered certificate: %v", err)
	}
}

func TestDeviceCode(t *testing.T) {
	a := start(t)
	c, err := azidentity.NewDeviceCodeCredential(&azidentity.DeviceCodeCredentialOptions{
		ClientOptions: a.options(), DisableInstanceDiscovery: true,
		TenantID: azuresim.DefaultTenant, ClientID: "04b07795-8ddb-461a-bbee-02f9e1bf7b46",
		UserPrompt: func(_ context.Context, m azidentity.DeviceCodeMessage) error {
			// A user opens the page and enters the code.
			response, err := a.server.Client().PostForm(m.VerificationURL,
				url.Values{"code": {m.UserCode}, "user": {"ada@example.com"}})
			if err == nil {
				response.Body.Close()
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetToken(t.Context(), scope(a)); err != nil {
		t.Error(err)
	}
}

func TestClusters(t *testing.T) {
	a := start(t)
	cred, options := a.arm(t)
	client, err := armcontainerservice.NewManagedClustersClient(subscription, cred, options)
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(t.Context(), "EDGE", "PROD", nil)
	if err != nil || *got.ID != clusterID || !*got.Properties.AADProfile.EnableAzureRBAC {
		t.Fatalf("Get: %+v, %v", got.ManagedCluster, err)
	}
	pager, n := client.NewListPager(nil), 0
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Value)
	}
	if n != 1 {
		t.Errorf("%d clusters listed, want 1", n)
	}
	user, err := client.ListClusterUserCredentials(t.Context(), group, "prod", nil)
	if err != nil || !strings.Contains(string(user.Kubeconfigs[0].Value),
		"server: https://prod.example.com:443") {
		t.Errorf("user credential: %v", err)
	}
	_, err = client.ListClusterAdminCredentials(t.Context(), group, "prod", nil)
	if failed, ok := errors.AsType[*azcore.ResponseError](err); !ok || failed.StatusCode != 400 ||
		!strings.Contains(failed.Error(), "disable local accounts") {
		t.Errorf("admin credential of a cluster without local accounts: %v", err)
	}
	a.Adjust(func(k *azuresim.Knobs) { k.OperationTime = 5 * time.Millisecond })
	made, err := client.BeginCreateOrUpdate(t.Context(), group, "new",
		armcontainerservice.ManagedCluster{Location: to.Ptr("lab")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := made.PollUntilDone(t.Context(),
		&runtime.PollUntilDoneOptions{Frequency: 10 * time.Millisecond}); err != nil ||
		*result.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("create: %v", err)
	}
	gone, err := client.BeginDelete(t.Context(), group, "new", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.PollUntilDone(t.Context(),
		&runtime.PollUntilDoneOptions{Frequency: 10 * time.Millisecond}); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func TestMachineAndRoles(t *testing.T) {
	a := start(t)
	a.Adjust(func(k *azuresim.Knobs) { k.Replication, k.Propagation = time.Minute, time.Minute })
	cred, options := a.arm(t)
	machines, err := armhybridcompute.NewMachinesClient(subscription, cred, options)
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	made, err := machines.CreateOrUpdate(t.Context(), group, "edge-1",
		armhybridcompute.Machine{Location: to.Ptr("lab"),
			Properties: &armhybridcompute.MachineProperties{
				ClientPublicKey: to.Ptr(base64.StdEncoding.EncodeToString(
					x509.MarshalPKCS1PublicKey(
						&key.PublicKey))),
			}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	principal := *made.Identity.PrincipalID
	roles, err := armauthorization.NewRoleAssignmentsClient(subscription, cred, options)
	if err != nil {
		t.Fatal(err)
	}
	assign := func(name string) error {
		properties := armauthorization.RoleAssignmentProperties{PrincipalID: &principal,
			RoleDefinitionID: to.Ptr("/subscriptions/" + subscription +
				"/providers/Microsoft.Authorization/roleDefinitions/" + clusterUser)}
		_, err := roles.Create(t.Context(), clusterID, name,
			armauthorization.RoleAssignmentCreateParameters{Properties: &properties}, nil)
		return err
	}
	code := func(err error) string {
		if failed, ok := errors.AsType[*azcore.ResponseError](err); ok {
			return failed.ErrorCode
		}
		return ""
	}
	const first, second = "dddddddd-0000-0000-0000-000000000001",
		"dddddddd-0000-0000-0000-000000000002"
	if err := assign(first); code(err) != "PrincipalNotFound" {
		t.Errorf("a principal that was made just now: %v", err)
	}
	a.clock.advance(2 * time.Minute)
	if err := assign(first); err != nil {
		t.Error(err)
	}
	if err := assign(first); err != nil {
		t.Errorf("the same assignment again: %v", err)
	}
	if err := assign(second); code(err) != "RoleAssignmentExists" {
		t.Errorf("the same under another name: %v", err)
	}
	const action = "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action"
	if a.Allowed(principal, action, clusterID, false) {
		t.Error("an assignment has an effect at once")
	}
	a.clock.advance(2 * time.Minute)
	if !a.Allowed(principal, action, clusterID, false) ||
		a.Allowed(principal, action, groupID, false) {
		t.Error("an assignment has no effect, or too far up")
	}
	pager, n := roles.NewListForScopePager(clusterID,
		&armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: to.Ptr(url.PathEscape(
			"principalId eq '" + principal + "'"))}), 0
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Value)
	}
	if n != 1 {
		t.Errorf("%d assignments listed, want 1", n)
	}
	if _, err := roles.Delete(t.Context(), clusterID, first, nil); err != nil {
		t.Error(err)
	}
	if _, err := machines.Delete(t.Context(), group, "edge-1", nil); err != nil {
		t.Error(err)
	}
	if _, err := machines.Get(t.Context(), group, "edge-1", nil); code(err) != "ResourceNotFound" {
		t.Errorf("a deleted machine: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	a := start(t)
	_, options := a.arm(t)
	client := func(app azuresim.Application, secret,
		sub string) *armcontainerservice.ManagedClustersClient {
		c, err := armcontainerservice.NewManagedClustersClient(sub, a.credential(t, app, secret),
			options)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tests := []struct {
		name  string
		err   func() error
		code  string
		parts []string
	}{
		{"no role", func() error {
			_, err := client(stranger, "battery-staple", subscription).Get(t.Context(), group,
				"prod", nil)
			return err
		}, "AuthorizationFailed", []string{"Microsoft.ContainerService/managedClusters/read",
			clusterID}},
		{"no such subscription", func() error {
			_, err := client(operator, "correct-horse",
				"99999999-9999-9999-9999-999999999999").Get(t.Context(), group, "prod", nil)
			return err
		}, "SubscriptionNotFound", nil},
		{"no such group", func() error {
			_, err := client(operator, "correct-horse", subscription).Get(t.Context(), "nowhere",
				"prod", nil)
			return err
		}, "ResourceGroupNotFound", nil},
		{"throttled", func() error {
			a.Adjust(func(k *azuresim.Knobs) {
				k.Faults = map[azuresim.Service]azuresim.Fault{
					azuresim.ARM: {Status: http.StatusTooManyRequests}}
			})
			_, err := client(operator, "correct-horse", subscription).Get(t.Context(), group,
				"prod", nil)
			return err
		}, "TooManyRequests", nil},
	}
	for _, tt := range tests {
		err := tt.err()
		failed, ok := errors.AsType[*azcore.ResponseError](err)
		if !ok || failed.ErrorCode != tt.code {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
			continue
		}
		for _, part := range tt.parts {
			if !strings.Contains(failed.Error(), part) {
				t.Errorf("%s: %v does not name %s", tt.name, err, part)
			}
		}
	}
	a.Adjust(func(k *azuresim.Knobs) {
		k.Faults = map[azuresim.Service]azuresim.Fault{
			azuresim.ARM: {Status: http.StatusTooManyRequests, Times: 2}}
	})
	if _, err := client(operator, "correct-horse", subscription).Get(t.Context(), group, "prod",
		nil); err != nil {
		t.Errorf("throttled for a while: %v", err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		a.server.URL+"/subscriptions?api-version=2019-11-01", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := a.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 401 ||
		!strings.HasPrefix(response.Header.Get("WWW-Authenticate"), "Bearer authorization_uri=") {
		t.Errorf("without a token: %s, %v", response.Status, response.Header)
	}
}
