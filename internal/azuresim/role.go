package azuresim

import (
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Role is a role definition: what it allows, with * for anything. DataActions are about what is
// inside a resource.
type Role struct {
	ID          string
	Name        string
	Actions     []string
	NotActions  []string
	DataActions []string
}

// The built-in roles that nodes have to do with, with the ids that they have everywhere in Azure.
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

func roleByID(id string) (Role, bool) {
	i := slices.IndexFunc(builtIn, func(r Role) bool { return strings.EqualFold(r.ID, id) })
	if i < 0 {
		return Role{}, false
	}
	return builtIn[i], true
}

// Allowed evaluates the role assignments that are in effect: whether a principal may do an action
// at a scope.
func (s *Sim) Allowed(principal, action, scope string, data bool) bool {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.effective(principal, scope),
		func(r Role) bool { return r.allows(action, data) })
}

// effective returns the roles that a principal has at a scope now.
func (s *Sim) effective(principal, scope string) []Role {
	var roles []Role
	for _, a := range s.world.Assignments {
		if !strings.EqualFold(a.PrincipalID, principal) || !arm.Within(scope, a.Scope) {
			continue
		}
		if made, fresh := s.made[a.Name]; fresh && s.now().Before(made.Add(s.knobs.Propagation)) {
			continue
		}
		if role, ok := roleByID(a.RoleID); ok {
			roles = append(roles, role)
		}
	}
	return roles
}
