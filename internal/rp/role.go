package rp

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
)

// Assignment lets a principal do actions at a scope and below.
type Assignment struct {
	// PrincipalID is the object id of a user or service principal; groups are not looked into.
	PrincipalID string `json:"principalId"`
	// Scope is a resource id, or / for everything.
	Scope string `json:"scope"`
	// Actions are those that are allowed; * stands for anything, as in Microsoft.ContainerService/managedClusters/flexNodeConfig/*.
	Actions []string `json:"actions"`
}

// Assignments is an Authorizer with a fixed list.
type Assignments []Assignment

// Allowed implements Authorizer.
func (a Assignments) Allowed(_ context.Context, c Caller, action, scope string) (bool, error) {
	for _, one := range a {
		if c.ObjectID != "" && strings.EqualFold(one.PrincipalID, c.ObjectID) && within(scope, one.Scope) && allows(one.Actions, action) {
			return true, nil
		}
	}
	return false, nil
}

// within tells whether a scope is another or lies below it.
func within(scope, other string) bool {
	scope, other = strings.ToLower(strings.TrimRight(scope, "/")), strings.ToLower(strings.TrimRight(other, "/"))
	return scope == other || strings.HasPrefix(scope, other+"/")
}

func allows(patterns []string, action string) bool {
	for _, p := range patterns {
		if wildcard(strings.ToLower(p), strings.ToLower(action)) {
			return true
		}
	}
	return false
}

// wildcard matches a pattern in which * stands for anything.
func wildcard(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for i := 0; i <= len(s); i++ {
		if wildcard(rest, s[i:]) {
			return true
		}
	}
	return false
}

// remembered is how long an answer of Resource Manager holds: a role that is taken away works on for so long.
const remembered = time.Minute

// ManagerRoles is an Authorizer that asks Resource Manager for the caller's role assignments. The provider's own identity must be allowed
// to read them (Microsoft.Authorization/*/read).
type ManagerRoles struct {
	Factory *armauthorization.ClientFactory
	Now     func() time.Time

	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	permissions []permission
	when        time.Time
}

type permission struct {
	scope               string
	actions, notActions []string
}

// Allowed implements Authorizer.
func (m *ManagerRoles) Allowed(ctx context.Context, c Caller, action, scope string) (bool, error) {
	permissions, err := m.permissions(ctx, c.ObjectID, scope)
	if err != nil {
		return false, err
	}
	for _, p := range permissions {
		if within(scope, p.scope) && allows(p.actions, action) && !allows(p.notActions, action) {
			return true, nil
		}
	}
	return false, nil
}

// permissions are those that a principal has at a scope, a minute old at most.
func (m *ManagerRoles) permissions(ctx context.Context, principal, scope string) ([]permission, error) {
	key := strings.ToLower(principal + " " + scope)
	m.mu.Lock()
	known, ok := m.known[key]
	m.mu.Unlock()
	if ok && m.Now().Before(known.when.Add(remembered)) {
		return known.permissions, nil
	}
	permissions, err := m.ask(ctx, principal, scope)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) > verified {
		m.known = map[string]answer{}
	}
	m.known[key] = answer{permissions, m.Now()}
	return permissions, nil
}

func (m *ManagerRoles) ask(ctx context.Context, principal, scope string) ([]permission, error) {
	var permissions []permission
	// The SDK sends the filter as it is given.
	pager := m.Factory.NewRoleAssignmentsClient().NewListForScopePager(scope, &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: to.Ptr(url.PathEscape("atScope() and assignedTo('" + principal + "')"))})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Value {
			definition, err := m.Factory.NewRoleDefinitionsClient().GetByID(ctx, *a.Properties.RoleDefinitionID, nil)
			if err != nil {
				return nil, err
			}
			for _, p := range definition.Properties.Permissions {
				permissions = append(permissions, permission{*a.Properties.Scope, values(p.Actions), values(p.NotActions)})
			}
		}
	}
	return permissions, nil
}

func values(list []*string) []string {
	var out []string
	for _, s := range list {
		if s != nil {
			out = append(out, *s)
		}
	}
	return out
}
