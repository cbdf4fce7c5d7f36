package front

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// errUnknownSubscription is for what is asked of a subscription that is not registered.
var errUnknownSubscription = errors.New("the subscription is not registered")

// How often a principal may ask for subscriptions that the index does not have.
const (
	unknowns     = 10
	unknownAgain = 10 * time.Second
)

// isKnown returns an error if Resource Manager is not to be asked whether a principal may do
// something in a subscription, given in lower case: errUnknownSubscription, unless it is to
// register that. Callers cannot make the provider work with subscriptions that they make up:
// requests for those that its index does not have are bounded.
func (m *ManagerRoles) isKnown(ctx context.Context, principal, action, subscription string) error {
	if m.index.Subscription(subscription) != "" {
		return nil
	}
	asking := m.asking.of(arm.Fold(principal), func() *rate.Limiter {
		return rate.NewLimiter(rate.Every(unknownAgain), unknowns)
	})
	if !asking.AllowN(m.now(), 1) {
		return throttle(unknownAgain)
	}
	if arm.EqualFold(action, registerAction) {
		return nil
	}
	row, err := m.stored.Subscriptions.Get(ctx, subscription) // the index may be behind
	if err != nil {
		return fmt.Errorf("cannot tell whether a subscription is registered: %w", err)
	}
	if row.Value.State == "" {
		return errUnknownSubscription
	}
	return nil
}
