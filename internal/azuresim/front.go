package azuresim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// call is an authenticated request to Azure Resource Manager.
type call struct {
	*http.Request
	id     arm.ID
	caller claims
	// action is the action at scope for which the caller needs permission.
	action, scope string
	body          []byte
}

// serveARM checks the api-version, the token and the permission, and passes the request to the
// handler of its resource type.
func (s *Sim) serveARM(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set("x-ms-correlation-request-id",
		first(r.Header.Get("x-ms-correlation-request-id"), uuid.NewString()))
	if strings.EqualFold(strings.Trim(r.URL.Path, "/"), "metadata/endpoints") {
		s.endpoints(w, r)
		return
	}
	c, err := s.enter(w, r)
	if err == nil {
		err = s.dispatch(w, c)
	}
	if err != nil {
		err.Write(w)
	}
}

func first[T comparable](a, b T) T {
	var none T
	if a != none {
		return a
	}
	return b
}

var apiVersion = regexp.MustCompile(
	`(?i)^\d{4}-\d{2}-\d{2}(-preview|-alpha|-beta|-rc|-privatepreview)?$`)

// deploymentPath matches paths below a deployment that do not name the provider.
var deploymentPath = regexp.MustCompile(
	`(?i)^(/subscriptions/[^/]+/resourcegroups/[^/]+)/deployments/`)

// enter checks a request's api-version, token, path and size, and returns the call.
func (s *Sim) enter(w http.ResponseWriter, r *http.Request) (call, *arm.Error) {
	c := call{Request: r}
	version := ""
	for key, values := range r.URL.Query() {
		if strings.EqualFold(key, "api-version") {
			version = values[0]
		}
	}
	switch {
	case version == "":
		return c, arm.Errorf(400, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	case !apiVersion.MatchString(version):
		return c, arm.Errorf(400, "InvalidApiVersionParameter",
			"The api-version '%s' is invalid. The supported versions are "+
				"'2019-11-01,2022-09-01,2024-02-01'.", version)
	}
	tooLong := func(segment string) bool { return len(segment) > segmentLimit }
	if slices.ContainsFunc(strings.Split(r.URL.Path, "/"), tooLong) {
		return c, arm.Errorf(400, "BadRequest", "A segment of the path is longer than %d.", segmentLimit)
	}
	var err error
	if c.caller, err = s.authenticate(w, r); err != nil {
		return c, err.(*arm.Error)
	}
	if c.id, err = arm.Parse(deploymentPath.ReplaceAllString(r.URL.Path,
		"$1/providers/Microsoft.Resources/deployments/")); err != nil {
		return c, arm.Errorf(404, "InvalidResourceId", "The request path '%s' is not valid.",
			r.URL.Path)
	}
	if c.body, err = io.ReadAll(io.LimitReader(r.Body, requestLimit+1)); err != nil {
		return c, arm.Errorf(400, "InvalidRequestContent", "The request content could not be read.")
	}
	if len(c.body) > requestLimit {
		return c, arm.Errorf(413, "RequestContentTooLarge",
			"Request content size exceeds the maximum size of %d bytes.", requestLimit)
	}
	c.permission()
	return c, s.exists(c.id)
}

// authenticate verifies the request's bearer token for ARM.
func (s *Sim) authenticate(w http.ResponseWriter, r *http.Request) (claims, error) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	challenge := func(code, description string) *arm.Error {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer authorization_uri="%s/%s", `+
			`error="invalid_token", error_description=%q`, origin(r), s.tenant(), description))
		return arm.Errorf(401, code, "%s", description)
	}
	if !ok {
		return claims{}, challenge("AuthenticationFailed",
			"Authentication failed. The 'Authorization' header is missing.")
	}
	c, err := s.verify(origin(r), text, armAudiences(r))
	if err != nil {
		return c, challenge("InvalidAuthenticationToken",
			"The access token is invalid: "+err.Error())
	}
	return c, nil
}

// permission sets the call's action and scope. The action is {namespace}/{types}/{read
//
// write
//
// delete}, or {namespace}/{types}/{action}/action for a POST.
func (c *call) permission() {
	c.scope = c.id.String()
	kind := c.id.Type()
	if c.id.Namespace == "" {
		kind = "Microsoft.Resources/subscriptions"
		if c.id.ResourceGroup != "" {
			kind += "/resourceGroups"
		}
	}
	verb := map[string]string{http.MethodGet: "read", http.MethodHead: "read",
		http.MethodPut: "write", http.MethodPatch: "write", http.MethodDelete: "delete"}[c.Method]
	if c.Method == http.MethodPost && len(c.id.Types) > len(c.id.Names) {
		last := len(c.id.Types) - 1
		c.id.Action = c.id.Types[last]
		c.id.Types = c.id.Types[:last]
		c.scope = strings.TrimSuffix(c.scope, "/"+c.id.Action)
		kind, verb = c.id.Type()+"/"+c.id.Action, "action"
	}
	if c.id.Parent != "" {
		c.scope = c.id.Parent
	} else if strings.EqualFold(c.id.Namespace, "Microsoft.Authorization") &&
		c.id.Subscription != "" { // at a subscription or resource group
		c.scope = c.id.Scope()
	}
	c.action = kind + "/" + verb
}

// exists returns an error if the id's subscription or resource group does not exist.
func (s *Sim) exists(id arm.ID) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id.Subscription != "" && !slices.ContainsFunc(s.world.Subscriptions,
		func(sub Subscription) bool { return strings.EqualFold(sub.ID, id.Subscription) }) {
		return arm.Errorf(404, "SubscriptionNotFound", "The subscription '%s' could not be found.",
			id.Subscription)
	}
	group := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s", id.Subscription, id.ResourceGroup)
	if id.ResourceGroup != "" && !slices.ContainsFunc(s.world.ResourceGroups,
		func(known string) bool { return arm.Key(known) == arm.Key(group) }) {
		return arm.Errorf(404, "ResourceGroupNotFound", "Resource group '%s' could not be found.",
			id.ResourceGroup)
	}
	return nil
}

// may returns an error unless a role assignment allows the call.
func (s *Sim) may(c call) *arm.Error {
	if s.Allowed(c.caller.OID, c.action, c.scope, false) {
		return nil
	}
	return arm.Errorf(403, "AuthorizationFailed",
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' "+
			"over scope '%s' or the scope is invalid. If access was recently granted, please "+
			"refresh your credentials.",
		first(c.caller.UPN, c.caller.AppID), c.caller.OID, c.action, c.scope)
}

// dispatch calls the handler of the resource type.
func (s *Sim) dispatch(w http.ResponseWriter, c call) *arm.Error {
	type handler func(http.ResponseWriter, call) *arm.Error
	handlers := map[string]handler{
		"microsoft.hybridcompute/machines":                  s.machines,
		"microsoft.authorization/roleassignments":           s.roleAssignments,
		"microsoft.authorization/roledefinitions":           s.roleDefinitions,
		"microsoft.authorization/denyassignments":           s.denyAssignments,
		"microsoft.authorization/permissions":               s.permissions,
		"microsoft.containerservice/managedclusters":        s.clusters,
		"microsoft.containerservice/locations/operations":   s.operation,
		"microsoft.resources/deployments":                   s.deployments,
		"microsoft.resources/deployments/operations":        s.deploymentOperations,
		"microsoft.resources/deployments/operationstatuses": s.deploymentStatus,
		"microsoft.resources/deployments/operationresults":  s.deploymentResult,
	}
	path := strings.ToLower(strings.Trim(c.URL.Path, "/"))
	if rest, ok := strings.CutSuffix(path, "/providers/microsoft.containerservice/register"); ok &&
		c.Method == http.MethodPost {
		return s.register(w, c, rest[strings.LastIndex(rest, "/")+1:])
	}
	switch {
	case path == "subscriptions":
		return s.subscriptions(w, c)
	case path == "tenants":
		tenant := s.tenant()
		arm.WriteJSON(w, 200, list([]any{map[string]any{"id": "/tenants/" + tenant,
			"tenantId": tenant, "displayName": "Simulated"}}))
		return nil
	case c.id.Namespace == "":
		return s.group(w, c)
	case len(c.id.Types) == 0:
		return s.provider(w, c)
	}
	if s.forwards(c) {
		if err := s.may(c); err != nil && !anyone(c) {
			return err
		}
		return s.forward(w, c)
	}
	if h := handlers[strings.ToLower(c.id.Type())]; h != nil {
		if err := s.may(c); err != nil && !anyone(c) {
			return err
		}
		return h(w, c)
	}
	if !slices.ContainsFunc(namespaces,
		func(n string) bool { return strings.EqualFold(n, c.id.Namespace) }) {
		return arm.Errorf(404, "InvalidResourceNamespace",
			"The resource namespace '%s' is invalid.", c.id.Namespace)
	}
	return arm.Errorf(404, "InvalidResourceType",
		"The resource type '%s' could not be found in the namespace '%s' for api version '%s'.",
		strings.Join(c.id.Types, "/"), c.id.Namespace, c.URL.Query().Get("api-version"))
}

// anyone reports whether a caller needs no role: for its own permissions and its operations.
func anyone(c call) bool {
	kind := strings.ToLower(c.id.Type())
	return c.Method == http.MethodGet &&
		(kind == "microsoft.authorization/permissions" ||
			strings.HasPrefix(kind, "microsoft.containerservice/locations/"))
}

var namespaces = []string{"Microsoft.HybridCompute", "Microsoft.Authorization",
	"Microsoft.ContainerService", "Microsoft.Resources"}

func list(items []any) map[string]any {
	if items == nil {
		items = []any{}
	}
	return map[string]any{"value": items}
}

// endpoints serves the metadata of this cloud, in the format of the requested api-version.
func (s *Sim) endpoints(w http.ResponseWriter, r *http.Request) {
	base := origin(r)
	authentication := map[string]any{"loginEndpoint": base + "/",
		"audiences": []string{base + "/", "https://management.azure.com/"}, "tenant": "common",
		"identityProvider": "AAD"}
	if r.URL.Query().Get("api-version") == "2015-01-01" {
		arm.WriteJSON(w, 200, map[string]any{"galleryEndpoint": base + "/", "graphEndpoint": base +
			"/", "portalEndpoint": base + "/", "authentication": authentication})
		return
	}
	arm.WriteJSON(w, 200, []any{map[string]any{"name": "azuresim", "portal": base,
		"resourceManager": base + "/", "graph": base + "/", "gallery": base + "/",
		"authentication": authentication, "suffixes": map[string]string{}}})
}

// subscriptions lists the subscriptions in which the caller has a role assignment.
func (s *Sim) subscriptions(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []any
	ids := s.identities(c.caller.OID)
	for _, sub := range s.world.Subscriptions {
		scope := "/subscriptions/" + sub.ID
		if slices.ContainsFunc(s.world.Assignments, func(a Assignment) bool {
			return ids[strings.ToLower(a.PrincipalID)] &&
				(arm.Within(a.Scope, scope) || s.within(scope, a.Scope))
		}) {
			items = append(items, s.subscription(sub))
		}
	}
	answer := list(items)
	answer["count"] = map[string]any{"type": "Total", "value": len(items)}
	arm.WriteJSON(w, 200, answer)
	return nil
}

func (s *Sim) subscription(sub Subscription) map[string]any {
	return map[string]any{
		"id": "/subscriptions/" + sub.ID, "subscriptionId": sub.ID, "tenantId": s.world.TenantID,
		"displayName": sub.Name, "state": "Enabled",
		"subscriptionPolicies": map[string]any{"locationPlacementId": "Public_2014-09-01",
			"quotaId": "PayAsYouGo_2014-09-01", "spendingLimit": "Off"},
		"authorizationSource": "RoleBased", "managedByTenants": []any{},
	}
}

// group serves a subscription and its resource groups.
func (s *Sim) group(w http.ResponseWriter, c call) *arm.Error {
	if err := s.may(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Method != http.MethodGet {
		return arm.Errorf(405, "MethodNotAllowed",
			"The simulated Azure has resource groups that are only read.")
	}
	if strings.HasSuffix(c.id.Key(), "/resourcegroups") {
		var items []any
		for _, id := range s.world.ResourceGroups {
			if arm.Within(id, "/subscriptions/"+c.id.Subscription) {
				items = append(items, resourceGroup(id))
			}
		}
		arm.WriteJSON(w, 200, list(items))
		return nil
	}
	if c.id.ResourceGroup == "" {
		for _, sub := range s.world.Subscriptions {
			if strings.EqualFold(sub.ID, c.id.Subscription) {
				arm.WriteJSON(w, 200, s.subscription(sub))
			}
		}
		return nil
	}
	arm.WriteJSON(w, 200, resourceGroup(c.id.String()))
	return nil
}

func resourceGroup(id string) map[string]any {
	return map[string]any{"id": id, "name": id[strings.LastIndex(id, "/")+1:],
		"type": "Microsoft.Resources/resourceGroups", "location": "lab",
		"properties": map[string]any{"provisioningState": "Succeeded"}}
}

// provider serves the metadata of a resource provider, which is always registered.
func (s *Sim) provider(w http.ResponseWriter, c call) *arm.Error {
	types := map[string][]string{
		"microsoft.containerservice": {"managedClusters"}, "microsoft.hybridcompute": {"machines"},
		"microsoft.authorization": {"roleAssignments", "roleDefinitions", "denyAssignments"},
		"microsoft.resources":     {"deployments"},
	}[strings.ToLower(c.id.Namespace)]
	if types == nil {
		return arm.Errorf(404, "InvalidResourceNamespace",
			"The resource namespace '%s' is invalid.", c.id.Namespace)
	}
	var items []any
	for _, t := range types {
		items = append(items, map[string]any{"resourceType": t, "locations": []string{"lab"},
			"apiVersions": []string{"2024-02-01", "2022-04-01"}, "capabilities": "None"})
	}
	if s.Provider != nil && strings.EqualFold(c.id.Namespace, "Microsoft.ContainerService") {
		items = append(items, map[string]any{"resourceType": "managedClusters/flexNodeConfig",
			"locations": []string{"lab"}, "apiVersions": []string{"2026-05-01-preview"},
			"capabilities": "None"})
	}
	arm.WriteJSON(w, 200, map[string]any{"id": c.id.String(), "namespace": c.id.Namespace,
		"registrationState": "Registered", "registrationPolicy": "RegistrationRequired",
		"resourceTypes": items})
	return nil
}

// register registers a subscription with Microsoft.ContainerService.
func (s *Sim) register(w http.ResponseWriter, c call, subscription string) *arm.Error {
	c.action, c.scope = "Microsoft.ContainerService/register/action", "/subscriptions/"+subscription
	if err := s.may(c); err != nil {
		return err
	}
	if err := s.registerAt(c.Context(), subscription); err != nil {
		return err
	}
	arm.WriteJSON(w, 200, map[string]any{"id": "/subscriptions/" + subscription +
		"/providers/Microsoft.ContainerService", "namespace": "Microsoft.ContainerService",
		"registrationState": "Registered"})
	return nil
}

// operation is a long-running operation.
type operation struct {
	id      string
	began   time.Time
	takes   time.Duration
	outcome string
}

// begin starts a long-running operation and returns the URL of its status.
func (s *Sim) begin(c call) string {
	op := operation{id: uuid.NewString(), began: s.now(), takes: s.operationTime(),
		outcome: "Succeeded"}
	s.operations[op.id] = op
	return fmt.Sprintf("%s/subscriptions/%s/providers/Microsoft.ContainerService/locations/lab/"+
		"operations/%s?api-version=2024-02-01", origin(c.Request), c.id.Subscription, op.id)
}

// operation serves Azure-AsyncOperation polls.
func (s *Sim) operation(w http.ResponseWriter, c call) *arm.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	op, ok := s.operations[c.id.Name()]
	if !ok {
		return arm.Errorf(404, "ResourceNotFound", "The operation '%s' was not found.", c.id.Name())
	}
	status := map[string]any{"id": c.id.String(), "name": op.id, "status": "InProgress",
		"startTime": op.began.UTC().Format(time.RFC3339)}
	if end := op.began.Add(op.takes); !s.now().Before(end) {
		status["status"], status["endTime"] = op.outcome, end.UTC().Format(time.RFC3339)
	} else {
		w.Header().Set("Retry-After", "1")
	}
	arm.WriteJSON(w, 200, status)
	return nil
}

// decode decodes a request's JSON body.
func decode(c call, into any) *arm.Error {
	if err := json.Unmarshal(c.body, into); err != nil {
		return arm.Errorf(400, "InvalidRequestContent",
			"The request content was invalid and could not be deserialized: '%v'.", err)
	}
	return nil
}

func notFound(c call) *arm.Error {
	return arm.Errorf(404, "ResourceNotFound",
		"The Resource '%s/%s' under resource group '%s' was not found. For more details please "+
			"go to https://aka.ms/ARMResourceNotFoundFix", c.id.Type(), c.id.Name(),
		c.id.ResourceGroup)
}

func notAllowed(w http.ResponseWriter, c call, allow string) *arm.Error {
	w.Header().Set("Allow", allow)
	return arm.Errorf(405, "MethodNotAllowed", "The request method '%s' is not allowed for '%s'.",
		c.Method, c.id.Type())
}
