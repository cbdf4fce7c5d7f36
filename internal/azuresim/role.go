package azuresim

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Role is a role definition. In actions, * matches anything. DataActions apply to data inside a
// resource.
type Role struct {
	ID          string
	Name        string
	Actions     []string
	NotActions  []string
	DataActions []string
	// Condition limits every assignment of the role.
	Condition string
}

// builtIn are the built-in roles that nodes need, with their ids in Azure.
var builtIn = []Role{
	{ID: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", Name: "Owner", Actions: []string{"*"}},
	{ID: "b24988ac-6180-42a0-ab88-20f7382dd24c", Name: "Contributor", Actions: []string{"*"},
		NotActions: []string{"Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write",
			"Microsoft.Authorization/elevateAccess/Action"}},
	{ID: "acdd72a7-3385-48ef-bd42-f606fba81ae7", Name: "Reader", Actions: []string{"*/read"}},
	{ID: "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9", Name: "User Access Administrator",
		Actions: []string{"*/read", "Microsoft.Authorization/*"}},
	{ID: "b64e21ea-ac4e-4cdf-9dc9-5b892992bee7", Name: "Azure Connected Machine Onboarding",
		Actions: []string{"Microsoft.HybridCompute/machines/read",
			"Microsoft.HybridCompute/machines/write",
			"Microsoft.HybridCompute/privateLinkScopes/read",
			"Microsoft.GuestConfiguration/guestConfigurationAssignments/read"}},
	{ID: "cd570a14-e51a-42ad-bac8-bafd67325302",
		Name: "Azure Connected Machine Resource Administrator",
		Actions: []string{"Microsoft.HybridCompute/machines/*",
			"Microsoft.HybridCompute/privateLinkScopes/*", "Microsoft.Resources/deployments/*"}},
	{ID: "0ab0b1a8-8aac-4efd-b8c2-3ee1fb270be8",
		Name: "Azure Kubernetes Service Cluster Admin Role",
		Actions: []string{
			"Microsoft.ContainerService/managedClusters/listClusterAdminCredential/action",
			"Microsoft.ContainerService/managedClusters/accessProfiles/listCredential/action",
			"Microsoft.ContainerService/managedClusters/read",
			"Microsoft.ContainerService/managedClusters/runcommand/action"}},
	{ID: "4abbcc35-e782-43d8-92c5-2d3f1bd2253f", Name: "Azure Kubernetes Service Cluster User Role",
		Actions: []string{
			"Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
			"Microsoft.ContainerService/managedClusters/read"}},
	{ID: "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b",
		Name: "Azure Kubernetes Service RBAC Cluster Admin",
		Actions: []string{"Microsoft.Authorization/*/read",
			"Microsoft.ContainerService/managedClusters/listClusterUserCredential/action"},
		DataActions: []string{"Microsoft.ContainerService/managedClusters/*"}},
	{ID: RoleAcrPull, Name: "AcrPull", Actions: []string{pullAction}},
	{ID: "7f6c6a51-bcf8-42ba-9220-52d62157d7db", Name: "Azure Kubernetes Service RBAC Reader",
		DataActions: []string{"Microsoft.ContainerService/managedClusters/pods/read",
			"Microsoft.ContainerService/managedClusters/services/read",
			"Microsoft.ContainerService/managedClusters/configmaps/read"}},
}

func (r Role) allows(action string, data bool) bool {
	if data {
		return arm.Allows(r.DataActions, action)
	}
	return arm.Allows(r.Actions, action) && !arm.Allows(r.NotActions, action)
}

// role returns a built-in or custom role.
func (s *Sim) role(id string) (Role, bool) {
	for _, r := range slices.Concat(builtIn, s.world.Roles) {
		if strings.EqualFold(r.ID, id) {
			return r, true
		}
	}
	return Role{}, false
}

// Allowed reports whether the role and deny assignments in effect allow a principal an action, or a
// data action, at a scope.
func (s *Sim) Allowed(principal, action, scope string, data bool) bool {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !data && s.denied(principal, action, scope) {
		return false
	}
	return slices.ContainsFunc(s.effective(principal, scope), func(g grant) bool {
		return g.allows(action, data) && holds(g.condition, action) && holds(g.Condition, action)
	})
}

// grant is a principal's role with the condition of the assignment.
type grant struct {
	Role
	condition string
}

// effective returns the roles that a principal has at a scope now, directly or through groups.
func (s *Sim) effective(principal, scope string) []grant {
	var grants []grant
	ids := s.identities(principal)
	delay := s.delay(func(k Knobs) time.Duration { return k.Propagation })
	for _, a := range s.world.Assignments {
		if !ids[strings.ToLower(a.PrincipalID)] || !s.within(scope, a.Scope) {
			continue
		}
		if made, fresh := s.made[a.Name]; fresh && s.now().Before(made.Add(delay)) {
			continue
		}
		if role, ok := s.role(a.RoleID); ok {
			grants = append(grants, grant{role, a.Condition})
		}
	}
	return grants
}

// everyone is the principal of deny assignments that apply to all.
const everyone = "00000000-0000-0000-0000-000000000000"

// denied reports whether a deny assignment denies a principal an action at a scope.
func (s *Sim) denied(principal, action, scope string) bool {
	ids := s.identities(principal)
	named := func(list []string) bool {
		return slices.ContainsFunc(list, func(id string) bool {
			return id == everyone || ids[strings.ToLower(id)]
		})
	}
	return slices.ContainsFunc(s.world.Denials, func(d Denial) bool {
		here := arm.Key(scope) == arm.Key(d.Scope) || !d.Exact && s.within(scope, d.Scope)
		return here && named(d.PrincipalIDs) && !named(d.Except) &&
			arm.Allows(d.Actions, action) && !arm.Allows(d.NotActions, action)
	})
}

var actionMatches = regexp.MustCompile(`(?i)ActionMatches\{'([^']*)'\}`)

// holds evaluates a condition in the form that Azure's editor writes,
//
// ((!(ActionMatches{'...'})) OR (expression)): it is true for actions that it does not name.
// Expressions are taken as false.
func holds(condition, action string) bool {
	if condition == "" {
		return true
	}
	named := actionMatches.FindAllStringSubmatch(condition, -1)
	return len(named) > 0 && !slices.ContainsFunc(named, func(m []string) bool {
		return arm.Allows([]string{m[1]}, action)
	})
}
