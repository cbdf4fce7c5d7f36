package flexnode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// The client secret: stored, kept, replaced, dropped; its version is never used again.
func TestClientSecrets(t *testing.T) {
	w := newWorld(t)
	with := asPrincipal
	steps := []struct {
		name                   string
		desired                Desired
		store, drop, change    bool
		refused, newSecretVers bool
	}{
		{name: "none is stored", desired: with(clientA, ""), refused: true},
		{name: "given", desired: with(clientA, "one"), store: true, change: true,
			newSecretVers: true},
		{name: "left out", desired: with(clientA, "")},
		{name: "in capitals", desired: with(strings.ToUpper(clientA), ""), change: true},
		{name: "given again", desired: with(strings.ToUpper(clientA), "one")},
		{name: "another one", desired: with(strings.ToUpper(clientA), "two"), store: true,
			change: true, newSecretVers: true},
		{name: "another client", desired: with(clientB, ""), refused: true},
		{name: "another client with one", desired: with(clientB, "two"), change: true},
		{name: "no client", desired: Desired{}, drop: true, change: true},
		{name: "back without one", desired: with(clientB, ""), refused: true},
		{name: "back", desired: with(clientB, "one"), store: true, change: true,
			newSecretVers: true},
	}
	versions := map[int64]bool{}
	for _, s := range steps {
		got, problems := w.decide(s.desired)
		if refused := len(problems) > 0; refused != s.refused {
			t.Fatalf("%s: %v", s.name, problems)
		}
		if s.refused {
			continue
		}
		w.keep(got.Node, got.Revision)
		if got.StoreSecret != s.store || got.DropSecret != s.drop || got.Changed != s.change {
			t.Errorf("%s: %+v", s.name, got)
		}
		v := w.last().SecretVersion
		expect(t, s.name+": the secret of the node", w.node.SecretVersion, v)
		expect(t, s.name+": the secret that is stored", w.version, v)
		if s.newSecretVers && versions[v] {
			t.Errorf("%s: the version %d of the secret comes back", s.name, v)
		}
		versions[v] = true
	}
}

// A changed identity is kept in Former, with which its agent reads the new one (B5).
func TestFormerIdentity(t *testing.T) {
	w := newWorld(t)
	as := func(client string) Desired {
		if client == "" {
			return Desired{}
		}
		return Desired{
			ContinuousMonitoring: true,
			AzureAuth: AzureAuth{
				Method:          api.ManagedIdentity,
				ManagedIdentity: &ManagedIdentityAuth{ClientID: client},
			},
		}
	}
	id := func(client string) string {
		if client == "" {
			return ""
		}
		return "app:" + tenant + "/" + client
	}
	clients := map[rune]string{'a': clientA, 'b': clientB, 'c': clientC, 'd': clientD, 'e': clientE}
	for _, s := range []struct {
		client rune
		former string
	}{
		{'a', ""}, {'a', ""}, {'b', "a"}, {'c', "ab"}, {'a', "bc"}, {'b', "ca"}, {0, "cab"},
		{'d', "cab"}, {'e', "cbd"}, {'c', "bde"}, {'b', "dec"}, {0, "dcb"}, {'d', "cb"},
		{'b', "cd"},
	} {
		w.put(as(clients[s.client]))
		var former []string
		for _, client := range s.former {
			former = append(former, id(clients[client]))
		}
		if got := w.node.Former.All(); w.node.Identity != id(clients[s.client]) ||
			!slices.Equal(got, former) {
			t.Fatalf("as %c: identity %q, former %q, want %q", s.client, w.node.Identity, got,
				former)
		}
	}
	// New facts with another tenant make another identity of the same client.
	w.node.Former = ""
	f := someFacts()
	f.TenantID = subscription2
	w.reach(f, "1.35.4")
	w.refresh()
	if w.node.Identity != "app:"+subscription2+"/"+clientB || w.node.Former != Former(id(clientB)) {
		t.Errorf("after new facts: %q, %q", w.node.Identity, w.node.Former)
	}
}

// One application in two tenants is two identities (the review's minor finding on request.go).
func TestIdentities(t *testing.T) {
	sp := func(client, tenant string) AzureAuth {
		return AzureAuth{
			Method:           api.ServicePrincipal,
			ServicePrincipal: &ServicePrincipalAuth{ClientID: client, ClientTenant: tenant},
		}
	}
	mi := func(client, principal string) AzureAuth {
		return AzureAuth{
			Method:          api.ManagedIdentity,
			ManagedIdentity: &ManagedIdentityAuth{ClientID: client, PrincipalID: principal},
		}
	}
	machine := "/subscriptions/S/resourceGroups/G/providers/Microsoft.HybridCompute/machines/M"
	lower := strings.ToLower(cluster[:strings.Index(cluster, "/providers/")])
	tests := []struct {
		auth         AzureAuth
		tenant, want string
	}{
		{AzureAuth{}, tenant, ""},
		{sp("A", "T1"), "t2", "app:t1/a"},
		{sp("A", ""), "T2", "app:t2/a"},
		{sp("A", ""), "", ""},
		{sp("A", "T1"), "", "app:t1/a"},
		{mi("A", "P"), "T2", "app:t2/a"},
		{mi("", "P"), "T2", "oid:t2/p"},
		{mi("", "P"), "", ""},
		{mi("", ""), "t2", ""},
		{AzureAuth{Method: api.Arc, Arc: &ArcAuth{MachineResourceID: machine}}, "t",
			"mirid:" + strings.ToLower(machine)},
		{AzureAuth{Method: api.Arc}, "",
			"mirid:" + lower + "/providers/microsoft.hybridcompute/machines/edge-1"},
	}
	for _, tt := range tests {
		expect(t, fmt.Sprintf("%+v in %q", tt.auth, tt.tenant),
			IdentityOf(nodeID, Desired{AzureAuth: tt.auth}, tt.tenant), tt.want)
	}
	expect(t, "a machine of nothing", MachineOf("odd", Desired{}), "")
}

// A resource group may have a name in any language, or be called providers, as may a cluster.
func TestMachineOfAnyGroup(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"edge", "İstanbul", "ȺȺȺȺ", "Providers"} {
		scope := "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/" + group
		got := MachineOf(scope+"/providers/Microsoft.ContainerService/managedClusters/providers/"+
			"flexNodeConfig/edge-1", Desired{})
		expect(t, "the machine", got, scope+"/providers/Microsoft.HybridCompute/machines/edge-1")
	}
}
