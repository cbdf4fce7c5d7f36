package front

import (
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
	gone        = "cccccccc-0000-0000-0000-00000000dead"
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
func newManager(t *testing.T, assignments grants, denials ...azuresim.Denial) *manager {
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
		Assignments: append(assignments, give("/subscriptions/"+subscription, reader, "provider"),
			give("/subscriptions/"+secondSubscription, reader, "provider")),
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
	return m.in(subscription, principal, action)
}

func (m *manager) may(principal, action string) bool { return must(m.ask(principal, action)) }

// fails asks, and checks that there is an error.
func (m *manager) fails(what, principal, action string) {
	m.t.Helper()
	allowed, err := m.ask(principal, action)
	shows(m.t, what+": allowed, without an error", "false false", allowed, err == nil)
}

type (
	grants  = []azuresim.Assignment
	denials = []azuresim.Denial
)

func give(scope, role, principal string) azuresim.Assignment {
	return azuresim.Assignment{Scope: scope, RoleID: role, PrincipalID: principal}
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
	owns, root := grants{give(cluster, owner, "p")}, groups+"root"
	tests := []struct {
		name      string
		principal string
		given     grants
		denied    denials
		allowed   string // of read, write, delete: their first letters
		less      bool   // than in Azure
	}{
		{"nothing", "p", nil, nil, "", false},
		{"cluster", "p", grants{give(cluster, contributor, "p")}, nil, "rwd", false},
		{"another caller", "p", grants{give(cluster, owner, "q")}, nil, "", false},
		{"another group", "p", grants{give(other, owner, "p")}, nil, "", false},
		{"reader", "p", grants{give("/subscriptions/"+subscription, reader, "p")}, nil, "r", false},
		{"not actions", "p", grants{give(cluster, custom, "p")}, nil, "rw", false},
		{"another node", "p", grants{give(cluster+"/flexNodeConfig/m", owner, "p")}, nil, "", false},
		{"root", "p", grants{give("/", owner, "p")}, nil, "rwd", false},
		{"management group", "p", grants{give(groups+"Plants", owner, "p")}, nil, "rwd", false},
		{"management group above", "p", grants{give(groups+"factories", owner, "p")}, nil, "rwd", false},
		{"management group beside", "p", grants{give(groups+"offices", owner, "p")}, nil, "", false},
		{"group", "member", grants{give(cluster, owner, "operators")}, nil, "rwd", false},
		{"group of groups", "nightly", grants{give(root, owner, "operators")}, nil, "rwd", false},
		{"no member", "member", grants{give(cluster, owner, "night-shift")}, nil, "", false},
		{"condition", "p", grants{under("((!(ActionMatches{'*/delete'})) OR (x))")}, nil, "", true},
		{"condition of the role", "p", grants{give(cluster, limited, "p")}, nil, "", true},
		{"condition and none", "p", append(grants{under("x")}, owns...), nil, "rwd", false},
		{"a role that is gone", "p", grants{give(cluster, gone, "p")}, nil, "", false},
		{"denied", "p", owns, denials{deny(cluster, "*/write", "p")}, "rd", false},
		{"denied above", "p", owns, denials{deny(groups+"factories", "*/delete", "p")}, "rw", false},
		{"denied elsewhere", "p", owns,
			denials{deny(other, "*", "p"), deny(groups+"offices", "*", "p")}, "rwd", false},
		{"denied to a group", "nightly", grants{give(cluster, owner, "nightly")},
			denials{deny(cluster, "*/write", "operators")}, "rd", false},
		{"denied to all", "p", owns, denials{deny(cluster, "*/write", everyone)}, "rd", false},
		{"denied to all others", "p", owns, denials{except}, "rwd", false},
		{"excepted by a group", "member", grants{give(cluster, owner, "member")},
			denials{exceptGroup}, "rd", true},
		{"denied there only", "p", owns, denials{exact}, "rwd", false},
		{"denied all but reading", "p", owns, denials{spared}, "r", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, principal := newManager(t, tt.given, tt.denied...), tt.principal
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
	m := newManager(t, grants{give(cluster, contributor, "p"), give(cluster, contributor, "q")})
	shows(t, "p and q may", "true true", m.may("p", write), m.may("q", write))
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
		asked := m.sim.Requests(azuresim.ARM) - before
		equal(t, fmt.Sprintf("%+v: it was asked %d times, too often", f, asked), asked > 4, false)
	}
	m.clock.Pass(outlasting)
	m.fails("an answer does not hold for ever", "q", write)
	m.heals()
	m.clock.Pass(longest)
	shows(t, "p and q may when it answers again", "false true", m.may("p", write), m.may("q", write))
	// A refusal is not an outage.
	m.breaks(azuresim.Fault{Status: http.StatusForbidden})
	m.clock.Pass(remembered)
	m.fails("when the provider may not ask any more", "q", write)
}

// A caller gets an error while Resource Manager throttles, and Resource Manager no more requests.
func TestManagerThrottles(t *testing.T) {
	t.Parallel()
	m := newManager(t, nil)
	m.breaks(azuresim.Fault{Status: http.StatusTooManyRequests, RetryAfter: 40})
	for range 3 {
		_, err := m.ask("p", write)
		has(t, "the error", fmt.Sprint(err), "TooManyRequests")
	}
	equal(t, "requests while it throttles", m.sim.Requests(azuresim.ARM), 1)
}

// Any number of callers' requests causes only a few to Resource Manager.
func TestManagerIsAskedOnce(t *testing.T) {
	t.Parallel()
	m := newManager(t, grants{give(cluster, contributor, "operator"),
		give("/subscriptions/"+subscription, reader, "operator")})
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
	m := newManager(t, grants{give("/", owner, "p")})
	allowed, err := m.in(secondSubscription, "p", read)
	shows(t, "of one that is not registered", "false true", allowed,
		errors.Is(err, errUnknownSubscription))
	// The answers to callers about it.
	w := newWorld(t)
	w.api.Authorizer, w.caller.ObjectID = m, "p"
	elsewhere := strings.Replace(nodeURL("n"), subscription, secondSubscription, 1)
	w.refused(409, "MissingSubscriptionRegistration", "PUT", elsewhere, withManaged)
	w.must(403, "GET", elsewhere, "")
	equal(t, "requests", m.sim.Requests(azuresim.ARM), 0)
	equal(t, "its owner may register it", must(m.in(secondSubscription, "p", registerAction)), true)
	m.register(secondSubscription)
	equal(t, "a subscription that was registered a moment ago",
		must(m.in(secondSubscription, "p", read)), true)
	before, throttled := m.sim.Requests(azuresim.ARM), 0
	for n := range 100 {
		other := fmt.Sprintf("%08d%s", n, subscription[8:])
		_, err := m.in(other, "stranger", registerAction)
		throttled += strings.Count(fmt.Sprint(err), "TooManyRequests")
	}
	asked := m.sim.Requests(azuresim.ARM) - before
	shows(t, fmt.Sprintf("100 made up, asked %d times, throttled", asked),
		fmt.Sprint(true, 100-unknowns), asked <= unknowns, throttled)
	must(m.in(subscription, "stranger", read)) // a subscription that is known
}

// A refusal of Resource Manager is cached for a while.
func TestRefusalsOfManagerAreRemembered(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		m := newManager(t, grants{give("/", owner, "p")})
		m.breaks(azuresim.Fault{Status: status})
		for range 100 {
			m.fails(fmt.Sprint(status), "p", read)
		}
		equal(t, fmt.Sprint(status, ": requests"), m.sim.Requests(azuresim.ARM), 1)
		m.breaks(azuresim.Fault{Status: http.StatusTooManyRequests})
		m.clock.Pass(remembered)
		m.fails(fmt.Sprint(status, ", which is no answer"), "p", read)
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
		m := newManager(t, grants{give("/", owner, "p")})
		m.register(secondSubscription)
		m.breaks(azuresim.Fault{Status: status, Match: secondSubscription})
		for range 3 {
			_, err := m.in(secondSubscription, "p", read)
			equal(t, fmt.Sprint(status, ": it answers"), err == nil, false)
		}
		if got := m.sim.Requests(azuresim.ARM); got > 3 { // tries of one question
			t.Errorf("%d: it was asked %d times", status, got)
		}
		allowed, err := m.in(subscription, "p", read)
		shows(t, fmt.Sprint(status, ": another subscription"), fmt.Sprint(want, " ", want), allowed,
			err == nil)
	}
}
