package azuresim

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// roleAssignments serves Microsoft.Authorization/roleAssignments at any scope.
func (s *Sim) roleAssignments(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.world.Assignments, func(a Assignment) bool {
		return strings.EqualFold(a.Name, c.id.Name()) && arm.Key(a.Scope) == arm.Key(c.scope)
	})
	switch {
	case c.id.Name() == "" && c.Method == http.MethodGet:
		return s.listAssignments(w, c)
	case c.Method == http.MethodPut:
		return s.putAssignment(w, c, at)
	case c.Method == http.MethodDelete && at < 0:
		w.WriteHeader(http.StatusNoContent)
	case c.Method == http.MethodDelete:
		gone := s.world.Assignments[at]
		s.world.Assignments = slices.Delete(s.world.Assignments, at, at+1)
		arm.WriteJSON(w, 200, s.assignment(gone))
	case c.Method == http.MethodGet && at < 0:
		return arm.Errorf(404, "RoleAssignmentNotFound", "The role assignment '%s' is not found.",
			c.id.Name())
	case c.Method == http.MethodGet:
		arm.WriteJSON(w, 200, s.assignment(s.world.Assignments[at]))
	default:
		return notAllowed(w, c, "GET, PUT, DELETE")
	}
	return nil
}

// assignment returns a role assignment in ARM's form. The caller holds the lock.
func (s *Sim) assignment(a Assignment) map[string]any {
	made := s.made[a.Name].UTC().Format("2006-01-02T15:04:05.0000000Z")
	subscription := ""
	if id, err := arm.Parse(a.Scope); err == nil && id.Subscription != "" {
		subscription = "/subscriptions/" + id.Subscription
	}
	shown := map[string]any{
		"id": strings.TrimRight(a.Scope, "/") +
			"/providers/Microsoft.Authorization/roleAssignments/" + a.Name, "name": a.Name,
		"type": "Microsoft.Authorization/roleAssignments",
		"properties": map[string]any{
			"scope": a.Scope, "principalId": a.PrincipalID, "principalType": "ServicePrincipal",
			"roleDefinitionId": subscription +
				"/providers/Microsoft.Authorization/roleDefinitions/" + a.RoleID,
			"createdOn": made, "updatedOn": made,
		},
	}
	if a.Condition != "" {
		properties := shown["properties"].(map[string]any)
		properties["condition"], properties["conditionVersion"] = a.Condition, "2.0"
	}
	return shown
}

// listAssignments lists role assignments at, above and below the scope; with the filter atScope(),
// none below it. The caller holds the lock.
func (s *Sim) listAssignments(w http.ResponseWriter, c call) *arm.Error {
	f := s.filter(c)
	var items []any
	for _, a := range s.world.Assignments {
		if s.listed(c.scope, a.Scope, f) && f.has(a.PrincipalID) {
			items = append(items, s.assignment(a))
		}
	}
	arm.WriteJSON(w, 200, list(items))
	return nil
}

func (s *Sim) putAssignment(w http.ResponseWriter, c call, at int) *arm.Error {
	var body struct {
		Properties struct {
			RoleDefinitionID string `json:"roleDefinitionId"`
			PrincipalID      string `json:"principalId"`
			Condition        string `json:"condition"`
		} `json:"properties"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if _, err := uuid.Parse(c.id.Name()); err != nil {
		return arm.Errorf(400, "InvalidRoleAssignmentId",
			"The role assignment ID '%s' is not valid. The role assignment ID must be a GUID.",
			c.id.Name())
	}
	id := body.Properties.RoleDefinitionID
	role, ok := s.role(id[strings.LastIndex(id, "/")+1:])
	if !ok {
		return arm.Errorf(400, "RoleDefinitionDoesNotExist",
			"The specified role definition with ID '%s' does not exist.", id)
	}
	a := Assignment{Name: c.id.Name(), Scope: c.scope, RoleID: role.ID,
		PrincipalID: body.Properties.PrincipalID, Condition: body.Properties.Condition}
	if !s.knownPrincipal(a.PrincipalID) {
		return arm.Errorf(400, "PrincipalNotFound",
			"Principal %s does not exist in the directory %s. Check that you have the correct "+
				"principal ID. If you are creating this principal and then immediately "+
				"assigning a role, this error might be related to a replication delay.",
			strings.ReplaceAll(a.PrincipalID, "-", ""), s.world.TenantID)
	}
	same := func(b Assignment) bool {
		return arm.Key(b.Scope) == arm.Key(a.Scope) &&
			strings.EqualFold(b.PrincipalID, a.PrincipalID) && b.RoleID == a.RoleID
	}
	if at >= 0 {
		if !same(s.world.Assignments[at]) {
			return arm.Errorf(400, "RoleAssignmentUpdateNotPermitted",
				"Tenant ID, application ID, principal ID, and scope are not allowed to be updated.")
		}
		arm.WriteJSON(w, 200, s.assignment(s.world.Assignments[at]))
		return nil
	}
	if i := slices.IndexFunc(s.world.Assignments, same); i >= 0 {
		return arm.Errorf(409, "RoleAssignmentExists",
			"The role assignment already exists. The ID of the existing role assignment is %s.",
			strings.ReplaceAll(s.world.Assignments[i].Name, "-", ""))
	}
	s.assign(a)
	arm.WriteJSON(w, 201, s.assignment(a))
	return nil
}

// knownPrincipal reports whether role assignments can refer to a principal yet.
func (s *Sim) knownPrincipal(oid string) bool {
	delay := s.delay(func(k Knobs) time.Duration { return k.Replication })
	if made, fresh := s.made[oid]; fresh && s.now().Before(made.Add(delay)) {
		return false
	}
	return slices.ContainsFunc(s.world.Applications,
		func(a Application) bool { return strings.EqualFold(a.ObjectID, oid) }) ||
		slices.ContainsFunc(s.world.Users,
			func(u User) bool { return strings.EqualFold(u.ObjectID, oid) }) ||
		slices.ContainsFunc(s.world.Groups,
			func(g Group) bool { return strings.EqualFold(g.ObjectID, oid) })
}

// definition returns a role in ARM's form.
func definition(r Role) map[string]any {
	return map[string]any{
		"id": "/providers/Microsoft.Authorization/roleDefinitions/" + r.ID, "name": r.ID,
		"type": "Microsoft.Authorization/roleDefinitions",
		"properties": map[string]any{"roleName": r.Name, "type": "BuiltInRole",
			"assignableScopes": []string{"/"}, "permissions": []any{permission(r)}},
	}
}

func permission(r Role) map[string]any {
	never := func(list []string) []string { return append([]string{}, list...) }
	shown := map[string]any{"actions": never(r.Actions), "notActions": never(r.NotActions),
		"dataActions": never(r.DataActions), "notDataActions": []string{}}
	if r.Condition != "" {
		shown["condition"], shown["conditionVersion"] = r.Condition, "2.0"
	}
	return shown
}

var roleNameFilter = regexp.MustCompile(`(?i)roleName eq '([^']*)'`)

// roleDefinitions lists the roles, or returns one.
func (s *Sim) roleDefinitions(w http.ResponseWriter, c call) *arm.Error {
	if c.Method != http.MethodGet {
		return notAllowed(w, c, "GET")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := c.id.Name(); name != "" {
		role, ok := s.role(name)
		if !ok {
			return arm.Errorf(404, "RoleDefinitionDoesNotExist",
				"The specified role definition with ID '%s' does not exist.", name)
		}
		arm.WriteJSON(w, 200, definition(role))
		return nil
	}
	var items []any
	want := roleNameFilter.FindStringSubmatch(c.URL.Query().Get("$filter"))
	for _, r := range slices.Concat(builtIn, s.world.Roles) {
		if want == nil || strings.EqualFold(want[1], r.Name) {
			items = append(items, definition(r))
		}
	}
	arm.WriteJSON(w, 200, list(items))
	return nil
}

// permissions lists the caller's permissions at a scope.
func (s *Sim) permissions(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	scope := c.id.Parent
	if scope == "" {
		scope = fmt.Sprintf("/subscriptions/%s", c.id.Subscription)
		if c.id.ResourceGroup != "" {
			scope += "/resourceGroups/" + c.id.ResourceGroup
		}
	}
	var items []any
	for _, role := range s.effective(c.caller.OID, scope) {
		items = append(items, permission(role.Role))
	}
	arm.WriteJSON(w, 200, list(items))
	return nil
}

// denyAssignments lists deny assignments at, above and below the scope.
func (s *Sim) denyAssignments(w http.ResponseWriter, c call) *arm.Error {
	if c.id.Name() != "" || c.Method != http.MethodGet {
		return notAllowed(w, c, "GET")
	}
	principals := func(ids []string) []any {
		shown := []any{}
		for _, id := range ids {
			shown = append(shown, map[string]any{"id": id})
		}
		return shown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.filter(c)
	var items []any
	for _, d := range s.world.Denials {
		if !s.listed(c.scope, d.Scope, f) || !slices.ContainsFunc(d.PrincipalIDs, f.has) {
			continue
		}
		items = append(items, map[string]any{"name": d.Name, "properties": map[string]any{
			"scope": d.Scope, "principals": principals(d.PrincipalIDs),
			"excludePrincipals":       principals(d.Except),
			"doNotApplyToChildScopes": d.Exact,
			"permissions": []any{
				map[string]any{"actions": d.Actions, "notActions": d.NotActions}},
		}})
	}
	arm.WriteJSON(w, 200, list(items))
	return nil
}
