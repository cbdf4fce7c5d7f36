package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/lab"
)

// way is a way in which a node authenticates.
type way struct {
	name, node string
	// principal is the object id of its identity if the test assigns its roles.
	principal string
	m         lab.Machine
	// endpoint is the URL that it polls. brief omits the steps that all ways share.
	endpoint string
	brief    bool
	// auth are the resource's sections at first, next those with another credential.
	auth, next desired
	// grant adds the rights that next needs beyond those of auth; revoke removes the previous ones.
	grant, revoke func(*testing.T)
}

func nothing(*testing.T) {}

// The ids of Azure's built-in roles of an identity that joins and is kubelet's.
const (
	clusterUser  = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f"
	clusterAdmin = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"
	contributor  = "b24988ac-6180-42a0-ab88-20f7382dd24c" // may poll Resource Manager
)

// ways returns the ways of document 004: a bootstrap token with a service principal that polls, and
// the three identities alone. It creates everything that they need in Azure. Service principals and
// Arc poll Resource Manager, the others the provider.
func ways(t *testing.T) []way {
	t.Helper()
	useAzure := desired{"useAzureAuth": true, "kubeletCredential": "token"}
	list := []way{
		principalWay(t, "service principal", 82, useAzure), arcWay(t),
		principalWay(t, "bootstrap token", 81, desired{}), managedWay(t, useAzure),
	}
	for i := range list {
		list[i].endpoint = api.ResourceManager
		if i > 1 {
			list[i].endpoint, list[i].brief = lab.ProviderURL, !long()
		}
		if list[i].m.Name == "" {
			list[i].m = bareMachine(t, list[i].node)
		}
	}
	return list
}

// principalWay returns a way with a service principal, whose secret is replaced.
func principalWay(t *testing.T, name string, n int, kubernetes desired) way {
	t.Helper()
	client, object := fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012d", n),
		fmt.Sprintf("bbbbbbbb-0000-0000-0000-%012d", n)
	first, second := fmt.Sprintf("canary-%d-of-before", n), fmt.Sprintf("canary-%d-of-after", n)
	has := func(t *testing.T, values ...string) {
		app := azuresim.Application{ClientID: client, ObjectID: object, Name: name}
		for _, v := range values {
			app.Secrets = append(app.Secrets, azuresim.Secret{Value: v})
		}
		azure(t, http.MethodPut, "/applications", app)
	}
	has(t, first, second)
	if len(kubernetes) > 0 {
		assign(t, object, clusterUser, clusterAdmin, contributor)
	}
	auth := func(secret string) desired {
		return desired{"kubernetesAuth": kubernetes, "azureAuth": desired{
			"method": "servicePrincipal", "servicePrincipal": desired{
				"clientId": client, "clientSecret": secret, "clientTenant": lab.Tenant,
			},
		}}
	}
	return way{
		name: name, node: fmt.Sprintf("follow-%d", n), principal: object,
		auth: auth(first), next: auth(second), grant: nothing,
		revoke: func(t *testing.T) { has(t, second) },
	}
}

// managedWay returns a way with an Azure VM's identity, which has no secret. The resource's
// identity changes from its principal id to its client id.
func managedWay(t *testing.T, kubernetes desired) way {
	t.Helper()
	m := bareMachine(t, "follow-vm")
	if err := bench.AddVMIdentity(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	who, err := bench.Azure()
	if err != nil {
		t.Fatal(err)
	}
	auth := func(identity desired) desired {
		return desired{"kubernetesAuth": kubernetes,
			"azureAuth": desired{"method": "managedIdentity", "managedIdentity": identity}}
	}
	return way{
		name: "managed identity", node: m.Name, m: m,
		auth:  auth(desired{"principalId": lab.VMObjectID}),
		next:  auth(desired{"clientId": who.VM.ClientID}),
		grant: nothing, revoke: nothing,
	}
}

// arcWay returns a way with a machine that its owner has connected to Arc and authorized, without a
// login or a service principal. kubelet's credential changes from certificate to token.
func arcWay(t *testing.T) way {
	t.Helper()
	m := bareMachine(t, "follow-arc")
	principal := connectedToArc(t, m, m.Name)
	for i, role := range []string{"system:node-bootstrapper",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient"} {
		binding := m.Name + "-" + string(rune('a'+i))
		if _, err := bench.Kubectl(t.Context(), "", "create", "clusterrolebinding", binding,
			"--clusterrole="+role, "--user="+principal); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = bench.Kubectl(context.Background(), "", "delete", "clusterrolebinding", binding)
		})
	}
	assign(t, principal, contributor)
	arc := desired{"method": "arc"}
	return way{
		name: "arc", node: m.Name, principal: principal, m: m,
		auth: desired{"azureAuth": arc, "kubernetesAuth": desired{"useAzureAuth": true}},
		next: desired{"azureAuth": arc, "kubernetesAuth": desired{
			"useAzureAuth": true, "kubeletCredential": "token"}},
		grant: func(t *testing.T) {
			azure(t, http.MethodPut, "/assignments", azuresim.Assignment{
				Scope: lab.ClusterID, RoleID: clusterAdmin, PrincipalID: principal})
		},
		revoke: nothing,
	}
}

// assign assigns roles on the cluster to a principal until the end of the test.
func assign(t *testing.T, principal string, roles ...string) {
	t.Helper()
	for _, role := range roles {
		azure(t, http.MethodPut, "/assignments", azuresim.Assignment{
			Scope: lab.ClusterID, RoleID: role, PrincipalID: principal})
	}
	t.Cleanup(func() { azure(t, http.MethodDelete, "/assignments?principal="+principal, nil) })
}

// assignments returns the role assignments of the lab's Azure.
func assignments(t *testing.T) (list []azuresim.Assignment) {
	t.Helper()
	text := azure(t, http.MethodGet, "/assignments", nil)
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// rolesOf returns the role assignments of the identities that poll.
func rolesOf(t *testing.T, list []way) []azuresim.Assignment {
	t.Helper()
	return slices.DeleteFunc(assignments(t), func(a azuresim.Assignment) bool {
		return !slices.ContainsFunc(list, func(w way) bool { return w.principal == a.PrincipalID })
	})
}

// arcRemains fails unless everything that the ways had in Azure before still exists, and nothing
// else except the role granted meanwhile: the roles, the owner's Arc machine, and its connection.
func arcRemains(t *testing.T, list []way, assigned []azuresim.Assignment) {
	t.Helper()
	now := rolesOf(t, list)
	for _, a := range assigned {
		if !slices.Contains(now, a) {
			t.Errorf("the role assignment %+v is gone", a)
		}
	}
	if len(now) != len(assigned)+1 {
		t.Errorf("role assignments before and after:\n%+v\n%+v", assigned, now)
	}
	for _, w := range list {
		if w.name != "arc" {
			continue
		}
		if is := arcPrincipal(t, w.node); is != w.principal {
			t.Errorf("the Arc machine's principal before and after: %s, %s", w.principal, is)
		}
		if out, code := inside(t, w.m, "azcmagent", "show", "--json"); code != 0 ||
			!strings.Contains(out, w.node) {
			t.Errorf("the Arc agent: %s", out)
		}
	}
}
