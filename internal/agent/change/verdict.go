package change

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/history"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// rejected returns the outcome of a configuration that has failed before.
func rejected(r history.Rejection) error {
	return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf(
		"the configuration was rejected at %s: %s", r.At.Format(time.DateTime), r.Reason)}
}

// Verdict returns the outcome of a run that ended with an error: what was rolled back is refused,
// as the same configuration fails again.
func Verdict(err error) transition.Outcome {
	o := transition.Of(err)
	_, locked := errors.AsType[*host.LockedError](err)
	_, invalid := errors.AsType[config.Problems](err)
	switch {
	case locked:
		o.Kind = transition.Busy
	case o.Kind == transition.RolledBack, o.Kind == transition.Failed && (invalid || unfit(err)):
		o.Kind = transition.Refused
	}
	return o
}

// unfit reports whether a preflight has failed for what the configuration is at fault for. What the
// network or the cluster is at fault for may pass by itself.
func unfit(err error) bool {
	failed, ok := errors.AsType[*health.Error](err)
	return ok && slices.ContainsFunc(failed.Conditions, func(c health.Condition) bool {
		return c.Owner == health.OwnerConfiguration
	})
}
