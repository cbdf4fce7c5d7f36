package front

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/rptest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// Built-in roles.
const (
	owner       = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
	contributor = "b24988ac-6180-42a0-ab88-20f7382dd24c"
	reader      = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
	custom      = "cccccccc-0000-0000-0000-000000000001"
	limited     = "cccccccc-0000-0000-0000-000000000002"
)

// Actions on a node.
const (
	read   = "Microsoft.ContainerService/managedClusters/flexNodeConfig/read"
	write  = "Microsoft.ContainerService/managedClusters/flexNodeConfig/write"
	remove = "Microsoft.ContainerService/managedClusters/flexNodeConfig/delete"
)

// secondSubscription is another subscription of the simulated Azure.
const secondSubscription = "22222222-2222-3333-4444-555555555555"

// manager is a simulated Resource Manager and an authorizer that asks it.
type manager struct {
	*ManagerRoles
	t     *testing.T
	sim   *azuresim.Sim
	clock *rptest.Clock
	store *store.Store
}

// newManager puts the subscription below plants, factories and the root; offices is beside them.
func newManager(
	t *testing.T, assignments []azuresim.Assignment, denials ...azuresim.Denial,
) *manager {
	t.Helper()
	m := &manager{t: t, sim: &azuresim.Sim{}, clock: rptest.NewClock()}
	m.clock.Set(time.Now())
	server := httptest.NewTLSServer(m.sim)
	t.Cleanup(server.Close)
	m.sim.Load(azuresim.World{
		TenantID: tenant, Subscriptions: []azuresim.Subscription{
			{ID: subscription}, {ID: secondSubscription},
		},
		ResourceGroups: []string{"/subscriptions/" + subscription + "/resourceGroups/Edge"},
		Applications: []azuresim.Application{{
			ClientID: clientA, ObjectID: "provider", Secrets: []azuresim.Secret{{Value: "s"}},
		}},
		Clusters: []azuresim.Cluster{{ID: cluster}},
		ManagementGroups: []azuresim.ManagementGroup{
			{Name: "Root"}, {Name: "factories", Parent: "root"}, {Name: "offices", Parent: "root"},
			{Name: "plants", Parent: "factories", Subscriptions: []string{subscription}},
		},
		Groups: []azuresim.Group{
			{ObjectID: "operators", Members: []string{"member", "night-shift"}},
			{ObjectID: "night-shift", Members: []string{"nightly"}},
		},
		Roles: []azuresim.Role{
			{ID: custom, Name: "no deletions", Actions: []string{"Microsoft.ContainerService/*"},
				NotActions: []string{"*/delete"}},
			{ID: limited, Name: "conditional", Actions: []string{"*"},
				Condition: "((!(ActionMatches{'*/write'})))"},
		},
		Assignments: append(assignments, azuresim.Assignment{
			Scope: "/subscriptions/" + subscription, RoleID: reader, PrincipalID: "provider",
		}, azuresim.Assignment{
			Scope: "/subscriptions/" + secondSubscription, RoleID: reader, PrincipalID: "provider",
		}),
		Denials: denials,
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
	factory := must(armauthorization.NewClientFactory(subscription, credential,
		&arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}))
	m.store = store.New(storetest.NewMemory())
	m.register(subscription)
	index := store.NewIndex(m.store)
	must(0, index.Load(t.Context()))
	m.ManagerRoles = NewManagerRoles(factory, index, m.store, m.clock.Now)
	return m
}

// register adds a subscription to the store; the index gets only the first one.
func (m *manager) register(subscription string) {
	m.t.Helper()
	must(m.store.Update(m.t.Context(), "test", nil, func(v *store.View) error {
		return m.store.Subscriptions.Set(v, subscription, flexnode.Subscription{State: registered})
	}))
}

// in checks an action on a node in a subscription.
func (m *manager) in(subscription, principal, action string) (bool, error) {
	return m.Allowed(context.Background(), Caller{ObjectID: principal}, action,
		strings.Replace(cluster, cluster[len("/subscriptions/"):][:36], subscription, 1)+
			"/flexNodeConfig/n")
}

func (m *manager) ask(principal, action string) (bool, error) {
	return m.Allowed(context.Background(), Caller{ObjectID: principal}, action,
		cluster+"/flexNodeConfig/n")
}

func (m *manager) may(principal, action string) bool {
	return must(m.ask(principal, action))
}

// breaks makes Resource Manager fail.
func (m *manager) breaks(f azuresim.Fault) {
	m.sim.Adjust(func(k *azuresim.Knobs) {
		k.Faults = map[azuresim.Service]azuresim.Fault{azuresim.ARM: f}
	})
}

func (m *manager) heals() { m.sim.Adjust(func(k *azuresim.Knobs) { k.Faults = nil }) }

// Rights by assignments and denials are those of Azure, or fewer, never more.
func TestManagerRights(t *testing.T) {
	t.Parallel()
	const groups = "/providers/Microsoft.Management/managementGroups/"
	const other = "/subscriptions/" + subscription + "/resourceGroups/Other"
	give := func(scope, role, principal string) azuresim.Assignment {
		return azuresim.Assignment{Scope: scope, RoleID: role, PrincipalID: principal}
	}
	under := func(condition string) azuresim.Assignment {
		a := give(cluster, owner, "p")
		a.Condition = condition
		return a
	}
	deny := func(scope, action string, principals ...string) azuresim.Denial {
		return azuresim.Denial{Name: "d", Scope: scope, Actions: []string{action},
			PrincipalIDs: principals}
	}
	except := deny(cluster, "*/write", everyone)
	except.Except = []string{"p"}
	exceptGroup := deny(cluster, "*/write", everyone)
	exceptGroup.Except = []string{"operators"}
	exact := deny(cluster, "*/write", "p")
	exact.Exact = true
	spared := deny(cluster, "*", "p")
	spared.NotActions = []string{"*/read"}
	type (
		grants  = []azuresim.Assignment
		denials = []azuresim.Denial
	)
	tests := []struct {
		name      string
		given     grants
		denied    denials
		principal string // "" is p
		allowed   string // of read, write, delete: their first letters
		less      bool   // than in Azure
	}{
		{name: "nothing"},
		{name: "cluster", given: grants{give(cluster, contributor, "p")}, allowed: "rwd"},
		{name: "another caller", given: grants{give(cluster, owner, "q")}},
		{name: "another group", given: grants{give(other, owner, "p")}},
		{name: "reader", allowed: "r",
			given: grants{give("/subscriptions/"+subscription, reader, "p")}},
		{name: "not actions", given: grants{give(cluster, custom, "p")}, allowed: "rw"},
		{name: "another node", given: grants{give(cluster+"/flexNodeConfig/m", owner, "p")}},
		{name: "root", given: grants{give("/", owner, "p")}, allowed: "rwd"},
		{name: "management group", allowed: "rwd",
			given: grants{give(groups+"Plants", owner, "p")}},
		{name: "management group above", allowed: "rwd",
			given: grants{give(groups+"factories", owner, "p")}},
		{name: "management group beside", given: grants{give(groups+"offices", owner, "p")}},
		{name: "group", given: grants{give(cluster, owner, "operators")}, principal: "member",
			allowed: "rwd"},
		{name: "group of groups", principal: "nightly", allowed: "rwd",
			given: grants{give(groups+"root", owner, "operators")}},
		{name: "no member", given: grants{give(cluster, owner, "night-shift")},
			principal: "member"},
		{name: "condition", less: true,
			given: grants{under("((!(ActionMatches{'*/delete'})) OR (x))")}},
		{name: "condition of the role", less: true, given: grants{give(cluster, limited, "p")}},
		{name: "condition, and none", allowed: "rwd",
			given: grants{under("x"), give(cluster, owner, "p")}},
		{name: "a role that is gone",
			given: grants{give(cluster, "cccccccc-0000-0000-0000-00000000dead", "p")}},
		{name: "denied", allowed: "rd", given: grants{give(cluster, owner, "p")},
			denied: denials{deny(cluster, "*/write", "p")}},
		{name: "denied above", allowed: "rw",
			given:  []azuresim.Assignment{give(cluster, owner, "p")},
			denied: denials{deny(groups+"factories", "*/delete", "p")}},
		{name: "denied elsewhere", allowed: "rwd",
			given:  []azuresim.Assignment{give(cluster, owner, "p")},
			denied: denials{deny(other, "*", "p"), deny(groups+"offices", "*", "p")}},
		{name: "denied to a group", principal: "nightly", allowed: "rd",
			given:  []azuresim.Assignment{give(cluster, owner, "nightly")},
			denied: denials{deny(cluster, "*/write", "operators")}},
		{name: "denied to all", allowed: "rd",
			given:  []azuresim.Assignment{give(cluster, owner, "p")},
			denied: denials{deny(cluster, "*/write", everyone)}},
		{name: "denied to all others", allowed: "rwd",
			given: grants{give(cluster, owner, "p")}, denied: denials{except}},
		{name: "excepted by a group", less: true, principal: "member", allowed: "rd",
			given:  []azuresim.Assignment{give(cluster, owner, "member")},
			denied: denials{exceptGroup}},
		{name: "denied there only", allowed: "rwd",
			given: grants{give(cluster, owner, "p")}, denied: denials{exact}},
		{name: "denied all but reading", allowed: "r",
			given: grants{give(cluster, owner, "p")}, denied: denials{spared}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, principal := newManager(t, tt.given, tt.denied...), cmp.Or(tt.principal, "p")
			got, azure := "", ""
			for letter, action := range map[string]string{"r": read, "w": write, "d": remove} {
				equal(t, action, m.may(principal, action), strings.Contains(tt.allowed, letter))
				if m.may(principal, action) {
					got += letter
				}
				if m.sim.Allowed(principal, action, cluster+"/flexNodeConfig/n", false) {
					azure += letter
				}
			}
			if len(got) > len(azure) || len(got) < len(azure) && !tt.less {
				t.Errorf("allowed %q, in Azure %q", got, azure)
			}
		})
	}
}

// An answer is cached for a minute, and longer while Resource Manager gives no new one.
func TestManagerRolesAreRemembered(t *testing.T) {
	t.Parallel()
	m := newManager(t, []azuresim.Assignment{
		{Scope: cluster, RoleID: contributor, PrincipalID: "p"},
		{Scope: cluster, RoleID: contributor, PrincipalID: "q"},
	})
	if !m.may("p", write) || !m.may("q", write) {
		t.Fatal("roles are not as Resource Manager has them")
	}
	m.sim.Revoke("p")
	equal(t, "an answer is remembered", m.may("p", write), true)
	for _, f := range []azuresim.Fault{
		{Status: http.StatusTooManyRequests, RetryAfter: 40}, {Status: 503}, {Outage: true},
	} {
		m.breaks(f)
		m.clock.Pass(remembered)
		before := m.sim.Requests(azuresim.ARM)
		for range 100 {
			equal(t, fmt.Sprintf("%+v: an answer is remembered while there is no other", f),
				m.may("q", write), true)
		}
		if asked := m.sim.Requests(azuresim.ARM) - before; asked > 4 {
			t.Errorf("%+v: it was asked %d times", f, asked)
		}
	}
	m.clock.Pass(outlasting)
	if allowed, err := m.ask("q", write); allowed || err == nil {
		t.Error("an answer holds for ever")
	}
	m.heals()
	m.clock.Pass(longest)
	if m.may("p", write) || !m.may("q", write) {
		t.Error("roles are not as Resource Manager has them when it answers again")
	}
	// A refusal is not an outage.
	m.breaks(azuresim.Fault{Status: http.StatusForbidden})
	m.clock.Pass(remembered)
	if allowed, err := m.ask("q", write); allowed || err == nil {
		t.Error("an answer holds though the provider may not ask any more")
	}
}

// A caller gets an error while Resource Manager throttles, and Resource Manager no more requests.
func TestManagerThrottles(t *testing.T) {
	t.Parallel()
	m := newManager(t, nil)
	m.breaks(azuresim.Fault{Status: http.StatusTooManyRequests, RetryAfter: 40})
	for range 3 {
		_, err := m.ask("p", write)
		if err == nil || !strings.Contains(err.Error(), "TooManyRequests") {
			t.Errorf("throttled: %v", err)
		}
	}
	equal(t, "requests while it throttles", m.sim.Requests(azuresim.ARM), 1)
}

// Any number of callers' requests causes only a few to Resource Manager.
func TestManagerIsAskedOnce(t *testing.T) {
	t.Parallel()
	m := newManager(t, []azuresim.Assignment{
		{Scope: cluster, RoleID: contributor, PrincipalID: "operator"},
		{Scope: "/subscriptions/" + subscription, RoleID: reader, PrincipalID: "operator"},
	})
	w := newWorld(t)
	w.register("")
	w.api.Authorizer = m
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for n := range 125 {
				recorder := w.serve("PUT", nodeURL(fmt.Sprintf("n%d-%d", worker, n)), withManaged)
				equal(t, "the status", recorder.Code, http.StatusCreated)
			}
		})
	}
	running.Wait()
	// Assignments, two roles, deny assignments twice.
	equal(t, "requests for 1,000 PUTs", m.sim.Requests(azuresim.ARM), 5)
}

// Unknown subscriptions cause no requests, except a few about the permission to register them.
func TestManagerIsNotAskedOfUnknownSubscriptions(t *testing.T) {
	t.Parallel()
	m := newManager(t, []azuresim.Assignment{{Scope: "/", RoleID: owner, PrincipalID: "p"}})
	if allowed, err := m.in(secondSubscription, "p", read); allowed ||
		!errors.Is(err, errUnknownSubscription) {
		t.Errorf("a subscription that is not registered: %t, %v", allowed, err)
	}
	equal(t, "requests", m.sim.Requests(azuresim.ARM), 0)
	equal(t, "its owner may register it", must(m.in(secondSubscription, "p", registerAction)), true)
	m.register(secondSubscription)
	equal(t, "a subscription that was registered a moment ago",
		must(m.in(secondSubscription, "p", read)), true)
	before, throttled := m.sim.Requests(azuresim.ARM), 0
	for n := range 100 {
		other := fmt.Sprintf("%08d%s", n, subscription[8:])
		if _, err := m.in(other, "stranger", registerAction); err != nil &&
			strings.Contains(err.Error(), "TooManyRequests") {
			throttled++
		}
	}
	asked := m.sim.Requests(azuresim.ARM) - before
	if asked > unknowns || throttled != 100-unknowns {
		t.Errorf("100 made up: it was asked %d times, %d were throttled", asked, throttled)
	}
	must(m.in(subscription, "stranger", read)) // a subscription that is known
}

// The answers to callers about a subscription that is not registered.
func TestUnknownSubscriptionBehindManagerRoles(t *testing.T) {
	t.Parallel()
	m := newManager(t, []azuresim.Assignment{{Scope: "/", RoleID: owner, PrincipalID: "operator"}})
	w := newWorld(t)
	w.api.Authorizer = m
	elsewhere := strings.Replace(nodeURL("n"), subscription, secondSubscription, 1)
	w.refused(409, "MissingSubscriptionRegistration", "PUT", elsewhere, withManaged)
	w.must(403, "GET", elsewhere, "")
}

// A refusal of Resource Manager is cached for a while.
func TestRefusalsOfManagerAreRemembered(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		m := newManager(t, []azuresim.Assignment{{Scope: "/", RoleID: owner, PrincipalID: "p"}})
		m.breaks(azuresim.Fault{Status: status})
		for range 100 {
			if allowed, err := m.ask("p", read); allowed || err == nil {
				t.Fatalf("%d: %t, %v", status, allowed, err)
			}
		}
		equal(t, fmt.Sprint(status, ": requests"), m.sim.Requests(azuresim.ARM), 1)
		m.breaks(azuresim.Fault{Status: http.StatusTooManyRequests})
		m.clock.Pass(remembered)
		if allowed, err := m.ask("p", read); allowed || err == nil {
			t.Errorf("%d: a refusal is taken for an answer", status)
		}
		m.heals()
		m.clock.Pass(longest)
		equal(t, fmt.Sprint(status, ": who may after a refusal"), m.may("p", read), true)
	}
}

// Failures of Resource Manager pause one subscription; throttling pauses all.
func TestPausesOfManager(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{
		http.StatusServiceUnavailable: true, http.StatusTooManyRequests: false,
	} {
		m := newManager(t, []azuresim.Assignment{{Scope: "/", RoleID: owner, PrincipalID: "p"}})
		m.register(secondSubscription)
		m.breaks(azuresim.Fault{Status: status, Match: secondSubscription})
		for range 3 {
			if _, err := m.in(secondSubscription, "p", read); err == nil {
				t.Fatalf("%d: it answers", status)
			}
		}
		if got := m.sim.Requests(azuresim.ARM); got > 3 { // tries of one question
			t.Errorf("%d: it was asked %d times", status, got)
		}
		if allowed, err := m.in(subscription, "p", read); allowed != want || (err == nil) != want {
			t.Errorf("%d: another subscription: %t, %v", status, allowed, err)
		}
	}
}
