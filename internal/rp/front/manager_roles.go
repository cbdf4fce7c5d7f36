package front

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"golang.org/x/sync/singleflight"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// remembered is how long an answer of Resource Manager holds: a role that is taken away works on
// for so long.
const remembered = time.Minute

// asking is how long Resource Manager is asked.
const asking = 20 * time.Second

// ManagerRoles is an Authorizer that asks Resource Manager for the caller's role assignments: all
// of a subscription at once, so that it is asked once for each caller and subscription, whatever
// the caller asks for. The provider's own identity must be allowed to read them
// (Microsoft.Authorization/*/read).
type ManagerRoles struct {
	Factory *armauthorization.ClientFactory
	Now     func() time.Time

	asked singleflight.Group
	mu    sync.Mutex
	known map[string]answer
	// quiet is until when Resource Manager does not want to be asked.
	quiet time.Time
}

// answer is what a principal may do in a subscription.
type answer struct {
	grants, denials []permission
	when            time.Time
}

type permission struct {
	scope               string
	exact               bool // not below the scope
	actions, notActions []string
}

// at tells whether a permission is for an action at a scope in the subscription that was asked
// about. The scopes above a subscription, which are management groups, are all around it.
func (p permission) at(action, scope string) bool {
	above := !strings.HasPrefix(strings.ToLower(p.scope), "/subscriptions/")
	here := !p.exact && (above || arm.Within(scope, p.scope)) || arm.Key(p.scope) == arm.Key(scope)
	return here && arm.Allows(p.actions, action) && !arm.Allows(p.notActions, action)
}

// Allowed implements Authorizer.
func (m *ManagerRoles) Allowed(
	ctx context.Context, c Caller, action, scope string,
) (bool, error) {
	id, err := arm.Parse(scope)
	if err != nil || !isGUID(id.Subscription) || c.ObjectID == "" {
		return false, nil
	}
	known, err := m.answer(ctx, c.ObjectID, strings.ToLower(id.Subscription))
	if err != nil {
		return false, err
	}
	for _, p := range known.denials {
		if p.at(action, scope) {
			return false, nil
		}
	}
	for _, p := range known.grants {
		if p.at(action, scope) {
			return true, nil
		}
	}
	return false, nil
}

// answer is what a principal may do in a subscription, a minute old at most.
func (m *ManagerRoles) answer(
	ctx context.Context, principal, subscription string,
) (answer, error) {
	key := strings.ToLower(principal) + " " + subscription
	m.mu.Lock()
	known, ok := m.known[key]
	quiet := m.quiet.Sub(m.Now())
	m.mu.Unlock()
	if ok && m.Now().Before(known.when.Add(remembered)) {
		return known, nil
	}
	if quiet > 0 {
		return answer{}, throttle(quiet)
	}
	result := m.asked.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), asking)
		defer cancel()
		return m.ask(ctx, key, principal, "/subscriptions/"+subscription)
	})
	select {
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case r := <-result:
		got, _ := r.Val.(answer)
		return got, r.Err
	}
}

// ask asks Resource Manager, and remembers the answer.
func (m *ManagerRoles) ask(
	ctx context.Context, key, principal, scope string,
) (answer, error) {
	// Who is asked too often is not asked again at once: its callers are told.
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{
		MaxRetries: 2, TryTimeout: 10 * time.Second, StatusCodes: []int{500, 502, 503, 504},
	})
	got := answer{when: m.Now()}
	var err error
	if got.grants, err = m.grants(ctx, principal, scope); err == nil {
		got.denials, err = m.denials(ctx, principal, scope)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if failed, ok := errors.AsType[*azcore.ResponseError](err); ok && failed.StatusCode == 429 {
		wait := retryAfter * time.Second
		if failed.RawResponse != nil {
			wait = waitOf(failed.RawResponse.Header, wait)
		}
		m.quiet = m.Now().Add(wait)
		return answer{}, throttle(wait)
	}
	if err != nil {
		return answer{}, err
	}
	if m.known == nil || len(m.known) > verified {
		m.known = map[string]answer{}
	}
	m.known[key] = got
	return got, nil
}

func waitOf(h http.Header, otherwise time.Duration) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 1 {
		return otherwise
	}
	return time.Duration(seconds) * time.Second
}

// grants is what a principal is allowed at a scope, above it and below it, also by its groups.
func (m *ManagerRoles) grants(
	ctx context.Context, principal, scope string,
) ([]permission, error) {
	// The SDK sends the filter as it is given.
	filter := url.PathEscape("assignedTo('" + principal + "')")
	pager := m.Factory.NewRoleAssignmentsClient().NewListForScopePager(scope,
		&armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: to.Ptr(filter)})
	roles := map[string][]*armauthorization.Permission{}
	var granted []permission
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Value {
			// Whether a condition holds is not known here.
			if a.Properties.Condition != nil && *a.Properties.Condition != "" {
				continue
			}
			id := *a.Properties.RoleDefinitionID
			name := id[strings.LastIndexByte(id, '/')+1:]
			if _, known := roles[id]; !known {
				role, err := m.Factory.NewRoleDefinitionsClient().Get(ctx, scope, name, nil)
				if err != nil {
					return nil, err
				}
				roles[id] = role.Properties.Permissions
			}
			for _, p := range roles[id] {
				granted = append(granted, permission{scope: *a.Properties.Scope,
					actions: values(p.Actions), notActions: values(p.NotActions)})
			}
		}
	}
	return granted, nil
}

// everyone is the principal of deny assignments that are for all.
const everyone = "00000000-0000-0000-0000-000000000000"

// denials is what a principal is denied: the deny assignments that Resource Manager says are its
// or its groups', and those for everyone. One with a condition counts.
func (m *ManagerRoles) denials(
	ctx context.Context, principal, scope string,
) ([]permission, error) {
	var denied []permission
	for _, filter := range []string{"assignedTo('" + principal + "')", ""} {
		var options armauthorization.DenyAssignmentsClientListForScopeOptions
		if filter != "" {
			options.Filter = to.Ptr(filter) // which the SDK escapes here
		}
		pager := m.Factory.NewDenyAssignmentsClient().NewListForScopePager(scope, &options)
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, a := range page.Value {
				p := a.Properties
				if hasPrincipal(p.ExcludePrincipals, principal) ||
					filter == "" && !hasPrincipal(p.Principals, everyone) {
					continue
				}
				denied = append(denied, denialsOf(p)...)
			}
		}
	}
	return denied, nil
}

func denialsOf(p *armauthorization.DenyAssignmentProperties) []permission {
	var denied []permission
	for _, one := range p.Permissions {
		denied = append(denied, permission{
			scope: *p.Scope, exact: p.DoNotApplyToChildScopes != nil && *p.DoNotApplyToChildScopes,
			actions: values(one.Actions), notActions: values(one.NotActions),
		})
	}
	return denied
}

func hasPrincipal(list []*armauthorization.Principal, id string) bool {
	for _, p := range list {
		if p != nil && p.ID != nil && strings.EqualFold(*p.ID, id) {
			return true
		}
	}
	return false
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

// throttled is a 429 with when to ask again.
type throttled struct {
	refusal *arm.Error
	after   time.Duration
}

func throttle(after time.Duration) error {
	return &throttled{after: after, refusal: arm.Errorf(http.StatusTooManyRequests,
		"TooManyRequests", "Too much is asked at a time. Try again later.")}
}

// Error implements error.
func (t *throttled) Error() string { return t.refusal.Error() }

// Unwrap gives the answer.
func (t *throttled) Unwrap() error { return t.refusal }
