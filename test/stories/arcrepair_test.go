package stories

import (
	"context"
	"slices"
	"strings"
	"testing"

	azpolicy "github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// arcWorld returns a machine with the Arc agent that will join in one of the Arc modes.
func arcWorld(t *testing.T, credential string, change ...func(map[string]any)) (
	*world, *azuresim.Sim, *machine) {
	t.Helper()
	w, sim := azureWorld(t)
	w.cluster.bootstrappers = true
	m := withMachine(t, w, sim, func() bool { return false })
	w.programs = m.programs
	n := map[string]int{"token": 6, "certificate": 7}[credential]
	w.config = w.modeConfig(modes("")[n].azure, change...)
	return w, sim, m
}

// principal returns the object id of the machine's own identity.
func (w *world) principal() string {
	w.t.Helper()
	token, err := identity.Fresh(w.t.Context(), func() (identity.Credential, error) {
		return identity.Kubelet(w.config.Azure, nil)
	}, identity.AKSServer+"/.default", identity.Need{})
	if err != nil {
		w.t.Fatal(err)
	}
	return identity.ClaimsOf(token.Value).ObjectID
}

// repaired checks that the machine is an Arc machine again, and that no change is due.
func (w *world) repaired(sim *azuresim.Sim, how string) {
	w.t.Helper()
	if c := w.condition(health.ArcConnected); c.Status != health.True {
		w.t.Errorf("%s: %+v", how, c)
	}
	if machines := sim.Machines(); len(machines) != 1 {
		w.t.Errorf("%s: machines %v", how, machines)
	}
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		w.t.Errorf("%s: drift %+v, %v", how, report, err)
	}
}

// A node's Arc machine has its name and resource group until it leaves.
func TestArcMachineStays(t *testing.T) {
	w, sim, _ := arcWorld(t, "token")
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	arc := *w.config.Azure.Arc
	w.config.Azure.Arc = &arc
	was := arc.MachineName
	arc.MachineName = "other"
	if _, err := w.bootstrap(); !refused(err) || !strings.Contains(err.Error(), "to other in") {
		t.Errorf("got %v", err)
	}
	arc.MachineName, arc.ResourceGroup = strings.ToUpper(was), strings.ToUpper(arc.ResourceGroup)
	if _, err := w.bootstrap(); err != nil {
		t.Errorf("another case: %v", err)
	}
	w.repaired(sim, "in another case")
}

// checkAndRepair runs a round of the daemon.
func (w *world) checkAndRepair() (found daemon.Finding, err error) {
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		watcher := w.watcher(a)
		if found, err = watcher.Check(ctx, nil); err != nil || len(found.Repair) == 0 {
			return err
		}
		return watcher.Repair(ctx, found.Repair).Err
	})
	return found, err
}

// An Arc machine that was deleted, disconnected or stripped of its roles is a condition and drift,
// and is repaired by bootstrap and by the policy repair, although the secret that enrolled it is
// not kept.
func TestArcIsMended(t *testing.T) {
	repair := func(c map[string]any) {
		c["agent"].(map[string]any)["driftPolicy"] = config.DriftRepair
	}
	for _, credential := range []string{"token", "certificate"} {
		w, sim, m := arcWorld(t, credential, repair)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(w.tree(), canary) {
			t.Error("the secret that has enrolled the machine is kept")
		}
		for _, tt := range []struct {
			name, reason string
			harm         func()
		}{
			{"deleted in Azure", "NotAccepted", sim.RemoveMachines},
			{"disconnected by hand", "NotRegistered", func() {
				if err := m.Disconnect(t.Context(), "", true); err != nil {
					t.Fatal(err)
				}
				sim.RemoveMachines()
			}},
			{"stripped of its roles", "RoleMissing", func() { sim.Revoke(w.principal()) }},
		} {
			if tt.reason == "RoleMissing" && credential == "certificate" {
				continue // it has none
			}
			for _, by := range []string{"bootstrap", "the daemon", "drift --repair"} {
				how := credential + ", " + tt.name + ", by " + by
				tt.harm()
				if c := w.condition(health.ArcConnected); c.Status != health.False ||
					c.Reason != tt.reason {
					t.Errorf("%s: %+v, want %s", how, c, tt.reason)
				}
				var err error
				switch by {
				case "bootstrap":
					_, err = w.bootstrap()
				case "the daemon":
					var found daemon.Finding
					found, err = w.checkAndRepair()
					if !slices.Contains(found.Repair, "arc:machine") {
						t.Errorf("%s: found %+v", how, found)
					}
				default:
					_, err = w.drift(true)
				}
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				w.repaired(sim, how)
			}
		}
		if err := w.unbootstrap(); err != nil {
			t.Error(err)
		}
		if len(sim.Machines()) > 0 {
			t.Errorf("left in Azure: %v", sim.Machines())
		}
	}
}

// connect connects a machine to Arc, like its owner before the join.
func (m *machine) connect(t *testing.T, w *world) {
	t.Helper()
	c := w.configuration(w.azure(nil)).Azure
	credential, err := identity.Manager(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := credential.GetToken(t.Context(), azpolicy.TokenRequestOptions{
		Scopes: []string{w.cluster.issuer + "/.default"}})
	if err == nil {
		err = m.Connect(t.Context(), azuresim.Connection{
			SubscriptionID: subscription, ResourceGroup: "rg", TenantID: azuresim.DefaultTenant,
			Location: "lab", ResourceName: "edge-1", AccessToken: token.Token,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// alone returns a change to an Arc machine without a service principal and a login.
func alone(credential string) func(map[string]any) {
	return func(azure map[string]any) {
		delete(azure, "servicePrincipal")
		azure["kubeletCredential"] = credential
		azure["arc"] = map[string]any{"location": "lab"}
	}
}

// A connected and authorized machine joins without a login or a service principal. What its owner
// has made in Azure remains.
func TestArcJoinsByItself(t *testing.T) {
	for _, credential := range []string{"token", "certificate"} {
		w, sim, m := arcWorld(t, credential)
		m.connect(t, w)
		for _, role := range []string{config.RoleClusterUser, config.RoleRBACClusterAdmin} {
			sim.Assign(azuresim.Assignment{Scope: clusterID, RoleID: config.Roles()[role],
				PrincipalID: w.principal()})
		}
		sim.Revoke(objectID) // no other identity may do anything
		assignments := len(sim.Assignments())
		w.config = w.modeConfig(alone(credential))
		if _, err := w.bootstrap(); err != nil {
			t.Fatalf("%s: %v", credential, err)
		}
		if err := w.unbootstrap(); err != nil {
			t.Errorf("%s, unbootstrap: %v", credential, err)
		}
		if len(sim.Machines()) != 1 || len(sim.Assignments()) != assignments {
			t.Errorf("%s: machines %v, %d assignments, before %d", credential, sim.Machines(),
				len(sim.Assignments()), assignments)
		}
	}
}

// A connected machine without its roles, which an operator assigns, reports the missing roles with
// principal and scope, and joins as soon as they are granted.
func TestArcWaitsForItsRoles(t *testing.T) {
	w, sim, m := arcWorld(t, "token")
	m.connect(t, w)
	principal := w.principal()
	sim.Assign(azuresim.Assignment{Scope: clusterID,
		RoleID: config.Roles()[config.RoleClusterUser], PrincipalID: principal})
	told := arc.GrantCommand(principal, config.RoleRBACClusterAdmin, clusterID)
	w.log.hears = func(line string) {
		if strings.Contains(line, "for an owner to authorise this machine") {
			if !strings.Contains(strings.ReplaceAll(line, `\"`, `"`), told) {
				t.Errorf("reported:\n%s\nwant %s", line, told)
			}
			sim.Assign(azuresim.Assignment{Scope: clusterID,
				RoleID: config.Roles()[config.RoleRBACClusterAdmin], PrincipalID: principal})
		}
	}
	w.config = w.modeConfig(alone("token"))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.log.String(), "for an owner to authorise this machine") {
		t.Error("it is not reported")
	}
}

// All missing permissions are reported before anything is changed.
func TestArcPermissionsComeFirst(t *testing.T) {
	w, sim, _ := arcWorld(t, "token")
	sim.Revoke(objectID)
	before := w.tree()
	_, err := w.bootstrap()
	for _, want := range []string{
		"nothing was changed", "Microsoft.HybridCompute/machines/write on " + groupID,
		"Microsoft.Authorization/roleAssignments/delete on " + clusterID,
		"az role assignment create --assignee " + objectID + ` --role "User Access Administrator" ` +
			"--scope " + clusterID,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
	w.same(before)
	if len(sim.Machines()) > 0 {
		t.Errorf("machines %v", sim.Machines())
	}
}
