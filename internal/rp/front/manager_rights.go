package front

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// answer holds the rights of a principal in a subscription. A part of a grant that is not
// understood does not grant, and a part of a denial that is not understood denies.
type answer struct {
	grants, denials []permission
	when            time.Time
	// refused is why Resource Manager does not tell.
	refused error
}

// allows reports whether an action at a scope in the subscription is granted and not denied.
func (a answer) allows(action, scope string) bool {
	has := func(all []permission, unknown bool) bool {
		return slices.ContainsFunc(all, func(p permission) bool {
			return p.at(scope, unknown) && p.names(action)
		})
	}
	return !has(a.denials, true) && has(a.grants, false)
}

// permission holds the permissions of a role or a deny assignment.
type permission struct {
	scope               string
	exact               bool // not below the scope
	actions, notActions []string
}

// managementGroups begins the scopes above subscriptions.
const managementGroups = "/providers/microsoft.management/managementgroups/"

// at reports whether a permission is for a scope in the subscription asked about, with the
// management groups above it. unknown is the answer for any other form of scope.
func (p permission) at(scope string, unknown bool) bool {
	at := arm.Key(p.scope)
	if unknown { // a denial holds for all that Azure might take for its scope
		at, scope = wide(at), wide(scope)
	}
	switch {
	case p.exact:
		return at == arm.Key(scope)
	case at == "/" || strings.HasPrefix(at, managementGroups):
		return true
	case strings.HasPrefix(at, "/subscriptions/"):
		return arm.Within(scope, at)
	}
	return unknown
}

// wide folds the case of all letters, as widely as any rule does.
func wide(s string) string { return strings.ToLower(strings.ToUpper(s)) }

func (p permission) names(action string) bool {
	return arm.Allows(p.actions, action) && !arm.Allows(p.notActions, action)
}

// grants returns the permissions of a principal at, above and below a scope, also by its groups.
func (m *ManagerRoles) grants(ctx context.Context, principal, scope string) ([]permission, error) {
	// The SDK sends the filter as it is given.
	filter := url.PathEscape(assignedTo(principal))
	pager := m.factory.NewRoleAssignmentsClient().NewListForScopePager(scope,
		&armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: new(filter)})
	var granted []permission
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Value {
			if a == nil || a.Properties == nil || isConditional(a.Properties.Condition) ||
				deref(a.Properties.Scope) == "" {
				continue
			}
			role, err := m.definition(ctx, deref(a.Properties.RoleDefinitionID), scope)
			if err != nil {
				return nil, err
			}
			for _, p := range role.permissions {
				p.scope = deref(a.Properties.Scope)
				granted = append(granted, p)
			}
		}
	}
	return granted, nil
}

// assignedTo is the filter for what concerns a principal, itself or by its groups.
func assignedTo(principal string) string {
	return "assignedTo('" + strings.ReplaceAll(principal, "'", "''") + "')"
}

// isConditional reports whether there is a condition: whether it holds is not known here.
func isConditional(condition *string) bool { return strings.TrimSpace(deref(condition)) != "" }

// definition holds what a role allows, without a scope.
type definition struct {
	permissions []permission
	when        time.Time
}

// definition is that of a role; a role that is not there any more allows nothing.
func (m *ManagerRoles) definition(ctx context.Context, id, scope string) (definition, error) {
	key := arm.Key(id)
	if known, ok := m.defined.Get(key); ok && m.now().Before(known.when.Add(remembered)) {
		return known, nil
	}
	var response *http.Response
	_, err := m.factory.NewRoleDefinitionsClient().Get(
		policy.WithCaptureResponse(ctx, &response), scope, id[strings.LastIndexByte(id, '/')+1:], nil)
	failed, ok := errors.AsType[*azcore.ResponseError](err)
	role := definition{when: m.now()}
	if ok && failed.StatusCode == http.StatusNotFound {
		return role, nil
	}
	if err == nil {
		role.permissions, err = permissionsOf(response)
	}
	if err != nil {
		return role, err
	}
	m.defined.Add(key, role)
	return role, nil
}

// permissionsOf reads a role's permissions without conditions, which the SDK does not show.
func permissionsOf(r *http.Response) ([]permission, error) {
	body, err := runtime.Payload(r)
	if err != nil {
		return nil, err
	}
	var role struct {
		Properties struct {
			Permissions []struct {
				Actions, NotActions []string
				Condition           *string
			}
		}
	}
	if err := json.Unmarshal(body, &role); err != nil {
		return nil, err
	}
	var all []permission
	for _, p := range role.Properties.Permissions {
		if !isConditional(p.Condition) {
			all = append(all, permission{actions: p.Actions, notActions: p.NotActions})
		}
	}
	return all, nil
}

// everyone is the principal of deny assignments that are for all.
const everyone = "00000000-0000-0000-0000-000000000000"

// denials returns what a principal is denied: by deny assignments for it, its groups, or everyone.
// A condition is taken to hold, and no group excepts a principal.
func (m *ManagerRoles) denials(ctx context.Context, principal, scope string) ([]permission, error) {
	var denied []permission
	for _, filter := range []string{assignedTo(principal), ""} {
		var options armauthorization.DenyAssignmentsClientListForScopeOptions
		if filter != "" {
			options.Filter = new(filter) // which the SDK escapes here
		}
		pager := m.factory.NewDenyAssignmentsClient().NewListForScopePager(scope, &options)
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, a := range page.Value {
				if a == nil || a.Properties == nil ||
					hasPrincipal(a.Properties.ExcludePrincipals, principal) ||
					filter == "" && !hasPrincipal(a.Properties.Principals, everyone) {
					continue
				}
				for _, one := range a.Properties.Permissions {
					denied = append(denied, permission{
						scope:   deref(a.Properties.Scope),
						exact:   *cmp.Or(a.Properties.DoNotApplyToChildScopes, new(false)),
						actions: values(one.Actions), notActions: values(one.NotActions),
					})
				}
			}
		}
	}
	return denied, nil
}

func hasPrincipal(list []*armauthorization.Principal, id string) bool {
	return slices.ContainsFunc(list, func(p *armauthorization.Principal) bool {
		return p != nil && strings.EqualFold(deref(p.ID), id)
	})
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

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
