package flexnode

import (
	"fmt"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// The client secret: stored, kept, replaced, dropped; its version is never used again.
func TestClientSecrets(t *testing.T) {
	w := newWorld(t)
	with, upper := asPrincipal, strings.ToUpper(clientA)
	versions := map[int64]bool{}
	for _, s := range []struct {
		name    string
		desired Desired
		does    string // what a decision does but to render
	}{
		{"none is stored", with(clientA, ""), "refused"},
		{"given", with(clientA, "one"), "changes writes renders stores"},
		{"left out", with(clientA, ""), ""},
		{"in capitals", with(upper, ""), "changes writes renders"},
		{"given again", with(upper, "one"), ""},
		{"another one", with(upper, "two"), "changes writes renders stores"},
		{"another client", with(clientB, ""), "refused"},
		{"another client with one", with(clientB, "two"), "changes writes renders"},
		{"no client", Desired{}, "changes writes renders drops"},
		{"back without one", with(clientB, ""), "refused"},
		{"back", with(clientB, "one"), "changes writes renders stores"},
	} {
		got, problems := w.decide(s.desired)
		if len(problems) > 0 {
			expect(t, s.name, "refused", s.does)
			continue
		}
		w.keep(got.Node, got.Revision)
		expect(t, s.name, effect(got), s.does)
		v := w.last().SecretVersion
		expect(t, s.name+": the secret of the node", w.node.SecretVersion, v)
		expect(t, s.name+": the secret that is stored", w.version, v)
		if got.StoreSecret {
			expect(t, s.name+": the version of the secret comes back", versions[v], false)
		}
		versions[v] = true
	}
}

// A changed identity is kept in Former, with which its agent reads the new one (B5).
func TestFormerIdentity(t *testing.T) {
	w := newWorld(t)
	client := func(letter rune) string { return strings.TrimRight(clientA, "a") + string(letter) }
	id := func(letter rune) string { return "app:" + tenant + "/" + client(letter) }
	for _, s := range []struct {
		client rune // none: a node without an identity
		former string
	}{
		{'a', ""}, {'a', ""}, {'b', "a"}, {'c', "ab"}, {'a', "bc"}, {'b', "ca"}, {0, "cab"},
		{'d', "cab"}, {'e', "cbd"}, {'c', "bde"}, {'b', "dec"}, {0, "dcb"}, {'d', "cb"},
		{'b', "cd"},
	} {
		d, want := Desired{}, []string{""}
		if s.client != 0 {
			d = Desired{ContinuousMonitoring: true, AzureAuth: AzureAuth{Method: api.ManagedIdentity,
				ManagedIdentity: &ManagedIdentityAuth{ClientID: client(s.client)}}}
			want[0] = id(s.client)
		}
		w.put(d)
		for _, letter := range s.former {
			want = append(want, id(letter))
		}
		expect(t, fmt.Sprintf("as %c, its identity and the former ones", s.client),
			append([]string{w.node.Identity}, w.node.Former.All()...), want)
	}
	// New facts with another tenant make another identity of the same client.
	w.node.Former = ""
	f := someFacts()
	f.TenantID = subscription2
	w.reach(f, "1.35.4")
	w.refresh()
	shows(t, "after new facts", "app:"+subscription2+"/"+clientB+" "+id('b'), w.node.Identity,
		w.node.Former)
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
