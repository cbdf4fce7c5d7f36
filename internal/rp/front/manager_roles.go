package front

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/Azure/AKSFlexNode/internal/arm"
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
	// principals limits cached answers, roles definitions, failures subscriptions without an answer.
	principals = 10_000
	roles      = 1_000
	failures   = 1_000
)

// ManagerRoles is an Authorizer that asks Resource Manager for a caller's role assignments, once
// for a whole subscription. The provider's identity must be allowed to read them
// (Microsoft.Authorization/*/read). For an unregistered subscription it asks only about the
// permission to register it.
type ManagerRoles struct {
	factory *armauthorization.ClientFactory
	index   *store.Index
	stored  *store.Store
	asking  limiters // by principal, for subscriptions that the index does not have
	now     func() time.Time
	asked   singleflight.Group
	known   *lru.Cache[string, answer]
	defined *lru.Cache[string, definition]
	failed  *lru.Cache[string, failure] // by subscription; "" pauses all requests
}

// failure pauses requests about a subscription, for a reason.
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
		known: newCache[string, answer](principals), defined: newCache[string, definition](roles),
		failed: newCache[string, failure](failures),
	}
}

// Allowed implements Authorizer.
func (m *ManagerRoles) Allowed(ctx context.Context, c Caller, action, scope string) (bool, error) {
	id, err := arm.Parse(scope)
	if err != nil || !flexnode.IsGUID(id.Subscription) || c.ObjectID == "" {
		return false, nil
	}
	subscription := arm.Fold(id.Subscription)
	if err := m.isKnown(ctx, c.ObjectID, action, subscription); err != nil {
		return false, err
	}
	known, err := m.answer(ctx, c.ObjectID, subscription)
	if err != nil {
		return false, err
	}
	return known.allows(action, scope), nil
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

// ask asks Resource Manager and caches the answer or failure.
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

// waitOf returns the time to wait that a response asks for.
func waitOf(r *http.Response) time.Duration {
	seconds := 0
	if r != nil {
		seconds, _ = strconv.Atoi(r.Header.Get("Retry-After")) // 0 without a number
	}
	return cmp.Or(time.Duration(min(max(0, seconds), 3600))*time.Second, arm.RetryLater)
}

// throttle returns a 429 with a time to retry.
func throttle(after time.Duration) error {
	return &refusal{after: after, answer: arm.Errorf(http.StatusTooManyRequests,
		"TooManyRequests", "Too many requests at a time. Try again later.")}
}

// errUnknownSubscription is the error for an action in a subscription that is not registered.
var errUnknownSubscription = errors.New("the subscription is not registered")

// Limits of a principal's requests about subscriptions that the index does not have.
const (
	unknowns     = 10
	unknownAgain = 10 * time.Second
)

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
	if err != nil {
		return fmt.Errorf("cannot check whether a subscription is registered: %w", err)
	}
	if row.Value.State == "" {
		return errUnknownSubscription
	}
	return nil
}
