package change

import (
	"errors"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// RejectedError tells that a configuration has failed before.
type RejectedError struct{ Rejection saved.Rejection }

// Verdict returns an error that says whether trying again can help.
func Verdict(err error) error {
	_, back := errors.AsType[*transition.RolledBackError](err)
	_, refused := errors.AsType[*transition.RefusedError](err)
	_, locked := errors.AsType[*saved.LockedError](err)
	_, changing := errors.AsType[*UnderWayError](err)
	_, unfit := errors.AsType[*health.Error](err)
	_, rejected := errors.AsType[*RejectedError](err)
	_, invalid := errors.AsType[config.Problems](err)
	switch {
	case err == nil:
		return nil
	case locked, changing, errors.Is(err, transition.ErrSuperseded):
		return &daemon.BusyError{Err: err}
	case back, refused, rejected, invalid:
		return &daemon.FinalError{Err: err}
	case unfit && !retryable(err):
		return &daemon.FinalError{Err: err}
	}
	return err
}

// retryable tells whether a preflight that failed may pass later by itself: what the network or the
// cluster is at fault for may; what the configuration is at fault for does not.
func retryable(err error) bool {
	failed, _ := errors.AsType[*health.Error](err)
	return !slices.ContainsFunc(failed.Conditions, func(c health.Condition) bool {
		return c.Owner == health.OwnerConfiguration
	})
}
