package front

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// remembered is how long an answer of Resource Manager holds: a role that is taken away works on
// for so long.
const remembered = time.Minute

// ManagerRoles is an Authorizer that asks Resource Manager for the caller's role assignments. The
// provider's own identity must be allowed to read them (Microsoft.Authorization/*/read).
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
func (m *ManagerRoles) Allowed(
	ctx context.Context, c Caller, action, scope string,
) (bool, error) {
	permissions, err := m.permissions(ctx, c.ObjectID, scope)
	if err != nil {
		return false, err
	}
	for _, p := range permissions {
		if arm.Within(scope, p.scope) && arm.Allows(p.actions, action) &&
			!arm.Allows(p.notActions, action) {
			return true, nil
		}
	}
	return false, nil
}

// permissions are those that a principal has at a scope, a minute old at most.
func (m *ManagerRoles) permissions(
	ctx context.Context, principal, scope string,
) ([]permission, error) {
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
	// The SDK sends the filter as it is given.
	filter := url.PathEscape("atScope() and assignedTo('" + principal + "')")
	pager := m.Factory.NewRoleAssignmentsClient().NewListForScopePager(scope,
		&armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: to.Ptr(filter)})
	var permissions []permission
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Value {
			granted, err := m.granted(ctx, a)
			if err != nil {
				return nil, err
			}
			permissions = append(permissions, granted...)
		}
	}
	return permissions, nil
}

// granted is what one assignment permits. One with a condition is not counted: whether it holds is
// not known here.
func (m *ManagerRoles) granted(
	ctx context.Context, a *armauthorization.RoleAssignment,
) ([]permission, error) {
	if a.Properties.Condition != nil && *a.Properties.Condition != "" {
		return nil, nil
	}
	role, err := m.Factory.NewRoleDefinitionsClient().
		GetByID(ctx, *a.Properties.RoleDefinitionID, nil)
	if err != nil {
		return nil, err
	}
	var permissions []permission
	for _, p := range role.Properties.Permissions {
		permissions = append(permissions,
			permission{*a.Properties.Scope, values(p.Actions), values(p.NotActions)})
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
