package front

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// errUnknownSubscription is for what is asked of a subscription that is not registered.
var errUnknownSubscription = errors.New("the subscription is not registered")

// knownSubscriptions keeps callers from making the provider work with subscriptions that they make
// up: who asks for those that its index does not have is bounded.
type knownSubscriptions struct {
	index  *store.Index
	stored *store.Store
	now    func() time.Time
	asking memo[string, *rate.Limiter] // by principal
}

// How often a principal may ask for subscriptions that the index does not have.
const (
	unknowns     = 10
	unknownAgain = 10 * time.Second
)

// check is an error if nobody is to be asked whether a principal may do something in a
// subscription, given in lower case: errUnknownSubscription, unless it is to register that.
func (k *knownSubscriptions) check(
	ctx context.Context, principal, action, subscription string,
) error {
	if k.index.Subscription(subscription) != "" {
		return nil
	}
	if !k.limiter(arm.Fold(principal)).AllowN(k.now(), 1) {
		return throttle(unknownAgain)
	}
	if arm.EqualFold(action, registerAction) {
		return nil
	}
	row, err := k.stored.Subscriptions.Get(ctx, subscription) // the index may be behind
	if err != nil {
		return fmt.Errorf("cannot tell whether a subscription is registered: %w", err)
	}
	if row.Value.State == "" {
		return errUnknownSubscription
	}
	return nil
}

func (k *knownSubscriptions) limiter(principal string) *rate.Limiter {
	return k.asking.of(principal, func() *rate.Limiter {
		return rate.NewLimiter(rate.Every(unknownAgain), unknowns)
	})
}
