package front

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// remembered is the lifetime of a cached answer: a removed role stays effective for so long.
	remembered = time.Minute
	// outlasting is the lifetime of a cached answer while Resource Manager gives no new one.
	outlasting = 10 * time.Minute
	// asking limits the time of a request to Resource Manager.
	asking = 20 * time.Second
	// pausing is the pause for a subscription after Resource Manager has failed to answer for it,
	// longest the max pause for all requests after it has sent a time to retry.
	pausing = 5 * time.Second
	longest = 5 * time.Minute
)

// ManagerRoles is an Authorizer that asks Resource Manager for a caller's role assignments, once
// for a whole subscription. The provider's identity must be allowed to read them
// (Microsoft.Authorization/*/read). For an unregistered subscription it asks only about the
// permission to register it.
type ManagerRoles struct {
	// Settings has further assignments, for which Resource Manager is not asked.
	Settings Assignments

	factory *armauthorization.ClientFactory
	index   *store.Index
	stored  *store.Store
	asking  limiters // by principal, for subscriptions that the index does not have
	now     func() time.Time
	asked   singleflight.Group
	known   *lru.Cache[string, answer] // by principal and subscription
	defined *lru.Cache[string, definition]
	failed  *lru.Cache[string, failure] // by subscription; "" pauses all requests
}

type failure struct {
	until time.Time
	why   error
}

// NewManagerRoles returns an authorizer. index and stored have the registered subscriptions.
func NewManagerRoles(
	factory *armauthorization.ClientFactory, index *store.Index, stored *store.Store,
	now func() time.Time,
) *ManagerRoles {
	return &ManagerRoles{
		factory: factory, index: index, stored: stored, now: now, asking: newLimiters(),
		known: fair.NewCache[string, answer](10_000), defined: fair.NewCache[string, definition](1_000),
		failed: fair.NewCache[string, failure](1_000),
	}
}

// Allowed implements Authorizer.
func (m *ManagerRoles) Allowed(ctx context.Context, c Caller, action, scope string) (bool, error) {
	if ok, err := m.Settings.Allowed(ctx, c, action, scope); ok && err == nil {
		return true, nil
	}
	id, err := arm.Parse(scope)
	if err != nil || !flexnode.IsGUID(id.Subscription) || c.ObjectID == "" {
		return false, nil
	}
	subscription := arm.Fold(id.Subscription)
	if err := m.isKnown(ctx, c.ObjectID, action, subscription); err != nil {
		return false, err
	}
	known, err := m.answer(ctx, c.ObjectID, subscription)
	return err == nil && known.allows(action, scope), err
}

// answer returns a principal's rights, cached for a minute, longer while no request succeeds.
func (m *ManagerRoles) answer(ctx context.Context, principal, subscription string) (answer, error) {
	key := arm.Fold(principal) + " " + subscription
	known, ok := m.known.Get(key)
	now := m.now()
	if ok && now.Before(known.when.Add(remembered)) {
		return known, known.refused
	}
	err := m.paused(now, subscription)
	if err == nil {
		result := m.asked.DoChan(key, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), asking)
			defer cancel()
			return m.ask(ctx, key, principal, subscription)
		})
		select {
		case <-ctx.Done():
			return answer{}, ctx.Err()
		case r := <-result:
			if r.Err == nil {
				return r.Val.(answer), nil
			}
			err = r.Err
		}
	}
	if ok && known.refused == nil && !isRefusal(err) && now.Before(known.when.Add(outlasting)) {
		return known, nil
	}
	return answer{}, err
}

// paused returns the reason for a pause of requests about a subscription; nil for no pause.
func (m *ManagerRoles) paused(now time.Time, subscription string) error {
	if f, ok := m.failed.Get(""); ok && now.Before(f.until) {
		return throttle(f.until.Sub(now))
	}
	if f, ok := m.failed.Get(subscription); ok && now.Before(f.until) {
		return f.why
	}
	return nil
}

// isRefusal reports whether Resource Manager has refused the provider's request.
func isRefusal(err error) bool {
	failed, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && failed.StatusCode >= 400 && failed.StatusCode < 500 && failed.StatusCode != 408
}

func (m *ManagerRoles) ask(
	ctx context.Context, key, principal, subscription string,
) (answer, error) {
	// A throttled request is not sent again at once: its callers get the answer.
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{
		MaxRetries: 2, TryTimeout: 10 * time.Second, StatusCodes: []int{500, 502, 503, 504},
	})
	got, scope := answer{when: m.now()}, "/subscriptions/"+subscription
	var err error
	if got.grants, err = m.grants(ctx, principal, scope); err == nil {
		got.denials, err = m.denials(ctx, principal, scope)
	}
	failed, ok := errors.AsType[*azcore.ResponseError](err)
	switch {
	case err == nil:
		m.known.Add(key, got)
		return got, nil
	case ok && failed.StatusCode == http.StatusTooManyRequests:
		wait := min(waitOf(failed.RawResponse), longest)
		m.failed.Add("", failure{until: m.now().Add(wait)})
		return answer{}, throttle(wait)
	case isRefusal(err):
		m.known.Add(key, answer{when: got.when, refused: err})
	default:
		m.failed.Add(subscription, failure{until: m.now().Add(pausing), why: err})
	}
	return answer{}, err
}

func waitOf(r *http.Response) time.Duration {
	seconds := 0
	if r != nil {
		seconds, _ = strconv.Atoi(r.Header.Get("Retry-After")) // 0 without a number
	}
	return cmp.Or(time.Duration(min(max(0, seconds), 3600))*time.Second, arm.RetryLater)
}

func throttle(after time.Duration) error {
	return &refusal{after: after, answer: arm.Errorf(http.StatusTooManyRequests,
		"TooManyRequests", "Too many requests at a time. Try again later.")}
}

var errUnknownSubscription = errors.New("the subscription is not registered")

// Limits of a principal's requests about subscriptions that the index does not have.
const unknowns, unknownAgain = 10, 10 * time.Second

// isKnown returns an error if Resource Manager must not be asked about a principal's action in a
// subscription, given in lower case: errUnknownSubscription, unless the action registers it.
// Invented subscriptions must not cause work: requests about those that the index does not have are
// limited.
func (m *ManagerRoles) isKnown(ctx context.Context, principal, action, subscription string) error {
	if m.index.Subscription(subscription) != "" {
		return nil
	}
	if !m.asking.of(arm.Fold(principal), unknownAgain, unknowns).AllowN(m.now(), 1) {
		return throttle(unknownAgain)
	}
	if arm.EqualFold(action, registerAction) {
		return nil
	}
	row, err := m.stored.Subscriptions.Get(ctx, subscription) // the index may be behind
	switch {
	case err != nil:
		return fmt.Errorf("cannot check whether a subscription is registered: %w", err)
	case row.Value.State == "":
		return errUnknownSubscription
	}
	return nil
}

// answer holds the rights of a principal in a subscription. Unknown parts of a grant do not grant,
// unknown parts of a denial deny.
type answer struct {
	grants, denials []permission
	when            time.Time
	// refused is the reason that Resource Manager gives no answer.
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

// at reports whether a permission covers a scope in the subscription of the request, with the
// management groups above it. unknown is the answer for any other form of scope.
func (p permission) at(scope string, unknown bool) bool {
	at := arm.Key(p.scope)
	if unknown { // a denial covers everything that Azure might take for its scope
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

// assignedTo returns the filter for assignments of a principal, its own or by its groups.
func assignedTo(principal string) string {
	return "assignedTo('" + strings.ReplaceAll(principal, "'", "''") + "')"
}

// isConditional reports whether there is a condition, which cannot be evaluated here.
func isConditional(condition *string) bool { return strings.TrimSpace(deref(condition)) != "" }

// definition holds the permissions of a role, without a scope.
type definition struct {
	permissions []permission
	when        time.Time
}

// definition returns the definition of a role; one that does not exist any more allows nothing.
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

// permissionsOf reads a role's permissions without conditions; the SDK does not decode conditions.
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

// everyone is the principal of deny assignments for all principals.
const everyone = "00000000-0000-0000-0000-000000000000"

// denials returns the permissions that deny assignments deny a principal, its groups, or everyone.
// A condition is taken to hold, and an excluded group excludes no principal.
func (m *ManagerRoles) denials(ctx context.Context, principal, scope string) ([]permission, error) {
	var denied []permission
	for _, filter := range []string{assignedTo(principal), ""} {
		var options armauthorization.DenyAssignmentsClientListForScopeOptions
		if filter != "" {
			options.Filter = new(filter) // the SDK escapes this one
		}
		pager := m.factory.NewDenyAssignmentsClient().NewListForScopePager(scope, &options)
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, a := range page.Value {
				if a == nil || a.Properties == nil || hasPrincipal(a.Properties.ExcludePrincipals, principal) ||
					filter == "" && !hasPrincipal(a.Properties.Principals, everyone) {
					continue
				}
				for _, one := range a.Properties.Permissions {
					denied = append(denied, permission{
						scope: deref(a.Properties.Scope), exact: deref(a.Properties.DoNotApplyToChildScopes),
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

func deref[T any](p *T) T { return *cmp.Or(p, new(T)) }
